{{/* The listeners of brokers, as JSON: name, port name, and values. */}}
{{- define "thalweg.listeners" -}}
{{- $listeners := .Values.listeners -}}
{{- $all := list (dict "name" "CLIENTS" "values" $listeners.clients) (dict "name" "REPLICATION" "values" $listeners.replication) -}}
{{- if $listeners.external.enabled -}}
{{- $all = append $all (dict "name" "EXTERNAL" "values" $listeners.external) -}}
{{- end -}}
{{ toJson $all }}
{{- end }}

{{/* The listener of controllers, in the same form. */}}
{{- define "thalweg.controllerListener" -}}
{{ dict "name" "CONTROLLER" "values" .Values.listeners.controllers | toJson }}
{{- end }}

{{- define "thalweg.hasTls" -}}
{{ if hasSuffix "SSL" .values.protocol }}yes{{ end }}
{{- end }}

{{/* A secret has the JAAS lines of these mechanisms; others need no line (context: name, values). */}}
{{- define "thalweg.jaasMechanisms" -}}
{{- $mechanisms := list -}}
{{- if hasPrefix "SASL" .values.protocol -}}
{{- range $mechanism := .values.sasl.mechanisms -}}
{{- if or (eq $mechanism "PLAIN") (has $.name (list "REPLICATION" "CONTROLLER")) }}{{ $mechanisms = append $mechanisms $mechanism }}{{ end -}}
{{- end -}}
{{- end -}}
{{ toJson $mechanisms }}
{{- end }}

{{/* The values `tls` of a listener (context: root, listener), as JSON. */}}
{{- define "thalweg.tls" -}}
{{ mergeOverwrite (deepCopy .root.Values.tls) (.listener.values.tls | default dict) | toJson }}
{{- end }}

{{/* The key of a listener in the values. */}}
{{- define "thalweg.key" -}}
listeners.{{ ternary "controllers" (lower .name) (eq .name "CONTROLLER") }}
{{- end }}

{{/* Refuses values of a listener that cannot work (context: root, listener). */}}
{{- define "thalweg.checkListener" -}}
{{- $key := include "thalweg.key" .listener -}}
{{- $protocol := .listener.values.protocol -}}
{{- $sasl := .listener.values.sasl -}}
{{- if and (include "thalweg.hasTls" .listener) (not (include "thalweg.tls" . | fromJson).secretName) -}}
{{- fail (printf "tls.secretName, or %s.tls.secretName, is needed with %s.protocol=%s: a secret with the key, the certificates and the authority" $key $key $protocol) -}}
{{- end -}}
{{- if hasPrefix "SASL" $protocol -}}
{{- if not $sasl.mechanisms -}}
{{- fail (printf "%s.sasl.mechanisms is needed with %s.protocol=%s, such as [SCRAM-SHA-512]" $key $key $protocol) -}}
{{- end -}}
{{- if and (has .listener.name (list "REPLICATION" "CONTROLLER")) (gt (len $sasl.mechanisms) 1) -}}
{{- fail (printf "%s.sasl.mechanisms has %d entries: nodes log in to each other by one" $key (len $sasl.mechanisms)) -}}
{{- end -}}
{{- $lines := include "thalweg.jaasMechanisms" .listener | fromJsonArray -}}
{{- if and $lines (not $sasl.secretName) -}}
{{- fail (printf "%s.sasl.secretName is needed with the mechanism %s: a secret with its JAAS line under the key %s" $key (first $lines) (lower (first $lines))) -}}
{{- end -}}
{{- end -}}
{{- end }}

{{/* The properties of a listener's security (context: root, listener), a line each. */}}
{{- define "thalweg.security" -}}
{{- include "thalweg.checkListener" . -}}
{{- $prefix := printf "listener.name.%s" (lower .listener.name) -}}
{{- $place := lower .listener.name -}}
{{- if include "thalweg.hasTls" .listener -}}
{{- $tls := include "thalweg.tls" . | fromJson }}
{{ $prefix }}.ssl.keystore.type=PEM
{{ $prefix }}.ssl.keystore.location=/etc/thalweg-tls/{{ $place }}/{{ $tls.keystore }}
{{ $prefix }}.ssl.truststore.type=PEM
{{ $prefix }}.ssl.truststore.location=/etc/thalweg-tls/{{ $place }}/{{ $tls.truststore }}
{{ $prefix }}.ssl.client.auth={{ $tls.clientAuth }}
{{- end }}
{{- if hasPrefix "SASL" .listener.values.protocol }}
{{- $mechanisms := .listener.values.sasl.mechanisms }}
{{ $prefix }}.sasl.enabled.mechanisms={{ join "," $mechanisms }}
{{- range $mechanism := include "thalweg.jaasMechanisms" .listener | fromJsonArray }}
{{ $prefix }}.{{ lower $mechanism }}.sasl.jaas.config=${directory:/etc/thalweg-sasl/{{ $place }}:{{ lower $mechanism }}}
{{- end }}
{{- if eq .listener.name "REPLICATION" }}
sasl.mechanism.inter.broker.protocol={{ first $mechanisms }}
{{- else if eq .listener.name "CONTROLLER" }}
sasl.mechanism.controller.protocol={{ first $mechanisms }}
{{- end }}
{{- end }}
{{- end }}

{{/* The mounts of a listener's secrets (context: root, listener). */}}
{{- define "thalweg.mounts" -}}
{{- $place := lower .listener.name -}}
{{- if include "thalweg.hasTls" .listener }}
- { name: tls-{{ $place }}, mountPath: /etc/thalweg-tls/{{ $place }}, readOnly: true }
{{- end }}
{{- if include "thalweg.jaasMechanisms" .listener | fromJsonArray }}
- { name: sasl-{{ $place }}, mountPath: /etc/thalweg-sasl/{{ $place }}, readOnly: true }
{{- end }}
{{- end }}

{{/* Their volumes. */}}
{{- define "thalweg.volumes" -}}
{{- $place := lower .listener.name -}}
{{- if include "thalweg.hasTls" .listener }}
- name: tls-{{ $place }}
  secret: { secretName: {{ (include "thalweg.tls" . | fromJson).secretName }}, defaultMode: 0440 }
{{- end }}
{{- if include "thalweg.jaasMechanisms" .listener | fromJsonArray }}
- name: sasl-{{ $place }}
  secret: { secretName: {{ .listener.values.sasl.secretName }}, defaultMode: 0440 }
{{- end }}
{{- end }}

{{/* The addresses of brokers for clients outside, a property for each host and port. Pods choose theirs by the node id. */}}
{{- define "thalweg.externalAddresses" -}}
{{- $external := .Values.listeners.external -}}
{{- range $broker := include "thalweg.brokers" . | fromJsonArray }}
{{- $own := include "thalweg.externalBroker" (dict "root" $ "id" (int $broker.id)) | fromJson }}
{{- if $own.host }}
host.{{ int $broker.id }}={{ $own.host }}
{{- end }}
port.{{ int $broker.id }}={{ int $own.port }}
{{- end }}
{{- end }}

{{/* Of one broker (context: root, id), as JSON: the host, empty for the node's address; the port that clients use; the port on the
     nodes, 0 with LoadBalancer; the annotations of its Service. */}}
{{- define "thalweg.externalBroker" -}}
{{- $external := .root.Values.listeners.external -}}
{{- $own := index $external.brokers (toString .id) | default dict -}}
{{- if and $own.host (not $external.host) -}}
{{- fail (printf "listeners.external.brokers.%d has a host, so that listeners.external.host is needed for the others" .id) -}}
{{- end -}}
{{- $host := $own.host | default $external.host | replace "{id}" (toString .id) -}}
{{- $nodePort := 0 -}}
{{- $port := int $external.port -}}
{{- if eq $external.type "NodePort" -}}
{{- $nodePort = int ($own.nodePort | default (add (int $external.firstNodePort) .id)) -}}
{{- $port = $nodePort -}}
{{- else if not $host -}}
{{- fail "listeners.external.host is needed with type=LoadBalancer: the name of each broker's balancer, such as broker-{id}.kafka.example.org" -}}
{{- end -}}
{{- $annotations := dict -}}
{{- range $key, $value := merge (deepCopy ($own.annotations | default dict)) $external.annotations -}}
{{- $_ := set $annotations $key (replace "{id}" (toString $.id) $value) -}}
{{- end -}}
{{ dict "host" $host "port" ($own.port | default $port) "nodePort" $nodePort "annotations" $annotations | toJson }}
{{- end }}

{{/* True where brokers advertise the address of their node. */}}
{{- define "thalweg.nodeAddress" -}}
{{- $external := .Values.listeners.external -}}
{{- if and $external.enabled (eq $external.type "NodePort") (not $external.host) }}yes{{ end -}}
{{- end }}

{{/* What the Services of the external listener have in common (context: root, policy). */}}
{{- define "thalweg.externalService" -}}
{{- $external := .root.Values.listeners.external -}}
type: {{ $external.type }}
externalTrafficPolicy: {{ .policy }}
{{- if eq $external.type "LoadBalancer" }}
{{- with $external.loadBalancerClass }}
loadBalancerClass: {{ . }}
{{- end }}
{{- with $external.loadBalancerSourceRanges }}
loadBalancerSourceRanges: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}
{{- end }}
