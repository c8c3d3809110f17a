{{/* Refuses values that cannot work together. */}}
{{- define "thalweg.check" -}}
{{- range $from, $values := dict "config" .Values.config "controllers.config" .Values.controllers.config -}}
{{- with index $values "default.replication.factor" -}}
{{- if gt (int .) (int $.Values.brokers) -}}
{{- fail (printf "%s has default.replication.factor=%v, but brokers is %v: topics could not be created. Lower it, and min.insync.replicas" $from . $.Values.brokers) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if and .Values.zones.fromNode .Values.zones.names -}}
{{- fail "zones.fromNode and zones.names are two ways to the same end: choose one" -}}
{{- end -}}
{{- if and .Values.zones.fromNode (not (semverCompare ">=1.35.0-0" .Capabilities.KubeVersion.Version)) -}}
{{- fail (printf "zones.fromNode needs Kubernetes 1.35, and this is %s: list the zones in zones.names" .Capabilities.KubeVersion.Version) -}}
{{- end -}}
{{- range $set := include "thalweg.sets" . | fromJsonArray -}}
{{- if and $set.zone (gt (int $set.count) 100) -}}
{{- fail (printf "brokers: zone %s would get %d, and a zone has at most 100" $set.zone (int $set.count)) -}}
{{- end -}}
{{- end -}}
{{- $ports := dict -}}
{{- $named := append (include "thalweg.listeners" . | fromJsonArray) (dict "name" "HTTP" "values" .Values.listeners.http) -}}
{{- range $listener := $named -}}
{{- $port := toString (int $listener.values.port) -}}
{{- if hasKey $ports $port -}}
{{- fail (printf "%s.port: %s is also the port of %s" (include "thalweg.key" $listener) $port (index $ports $port)) -}}
{{- end -}}
{{- $_ := set $ports $port (include "thalweg.key" $listener) -}}
{{- end -}}
{{- include "thalweg.checkBudget" . -}}
{{- end }}

{{/* A budget that lets more brokers go than min.insync.replicas allows would stop producers with acks=all. */}}
{{- define "thalweg.checkBudget" -}}
{{- $budget := .Values.podDisruptionBudget -}}
{{- $replicas := int (index .Values.config "default.replication.factor" | default 1) -}}
{{- $insync := int (index .Values.config "min.insync.replicas" | default 1) -}}
{{- $spare := max 1 (sub $replicas $insync) -}}
{{- $key := "maxUnavailable" -}}
{{- $gone := $budget.brokers.maxUnavailable -}}
{{- if not (kindIs "invalid" $budget.brokers.minAvailable) -}}
{{- $key = "minAvailable" -}}
{{- $gone = $budget.brokers.minAvailable -}}
{{- if not (kindIs "string" $gone) }}{{ $gone = sub (int .Values.brokers) (int $gone) }}{{ end -}}
{{- end -}}
{{- if and $budget.enabled (not (kindIs "string" $gone)) (gt (int $gone) (int $spare)) -}}
{{- fail (printf "podDisruptionBudget.brokers.%s: %d brokers could be evicted at once, but default.replication.factor=%d and min.insync.replicas=%d leave %d to spare" $key (int $gone) $replicas $insync (int $spare)) -}}
{{- end -}}
{{- end }}
