{{/* Properties of a map, a line each, in order. Whole numbers of YAML are floats here. */}}
{{- define "thalweg.properties" -}}
{{- range $key, $value := . }}
{{ $key }}={{ if kindIs "float64" $value }}{{ if eq (float64 (int64 $value)) $value }}{{ int64 $value }}{{ else }}{{ $value }}{{ end }}{{ else }}{{ $value }}{{ end }}
{{- end }}
{{- end }}

{{/* Where brokers find controllers. */}}
{{- define "thalweg.controllers" -}}
{{- $name := include "thalweg.name" . -}}
{{- $at := printf "%s-controllers.%s.svc:%d" $name .Release.Namespace (int .Values.listeners.controllers.port) -}}
{{- if eq .Values.controllers.kind "external" -}}
{{ required "controllers.bootstrapServers is needed with controllers.kind=external: host:port, separated by commas" .Values.controllers.bootstrapServers }}
{{- else if eq .Values.controllers.kind "apache" -}}
{{- range $index := until (int .Values.controllers.replicas) }}{{ if $index }},{{ end }}{{ $name }}-controller-{{ $index }}.{{ $at }}{{ end }}
{{- else -}}
{{ $name }}-controller-0.{{ $at }}
{{- end -}}
{{- end }}

{{/* The voters of Apache Kafka's controllers, whose ids no broker uses. */}}
{{- define "thalweg.voters" -}}
{{- $name := include "thalweg.name" . -}}
{{- $at := printf "%s-controllers.%s.svc:%d" $name .Release.Namespace (int .Values.listeners.controllers.port) -}}
{{- range $index := until (int .Values.controllers.replicas) }}{{ if $index }},{{ end }}100{{ $index }}@{{ $name }}-controller-{{ $index }}.{{ $at }}{{ end }}
{{- end }}

{{/* Sources of values: addresses of brokers, and passwords. Those of the values (config.providers) come behind them. */}}
{{- define "thalweg.providers" -}}
{{- $package := "org.apache.kafka.common.config.provider" -}}
config.providers=file,directory{{ with index . "config.providers" }},{{ . }}{{ end }}
config.providers.file.class={{ $package }}.FileConfigProvider
config.providers.directory.class={{ $package }}.DirectoryConfigProvider
{{- end }}

{{/* server.properties of the brokers. */}}
{{- define "thalweg.brokerSettings" -}}
{{- $listeners := include "thalweg.listeners" . | fromJsonArray -}}
{{- $controller := include "thalweg.controllerListener" . | fromJson -}}
{{- $bound := list -}}
{{- $protocols := list -}}
{{- range $listener := $listeners -}}
{{- $bound = append $bound (printf "%s://0.0.0.0:%d" $listener.name (int $listener.values.port)) -}}
{{- $protocols = append $protocols (printf "%s:%s" $listener.name $listener.values.protocol) -}}
{{- end -}}
{{- $protocols = append $protocols (printf "CONTROLLER:%s" $controller.values.protocol) -}}
process.roles=broker
controller.quorum.bootstrap.servers={{ include "thalweg.controllers" . }}
controller.listener.names=CONTROLLER
log.dirs=/var/lib/thalweg/data
listeners={{ join "," $bound }}
listener.security.protocol.map={{ join "," $protocols }}
inter.broker.listener.name=REPLICATION
http.listener=0.0.0.0:{{ .Values.listeners.http.port }}
{{ include "thalweg.providers" .Values.config }}
{{- range $listener := append $listeners $controller }}
{{- include "thalweg.security" (dict "root" $ "listener" $listener) }}
{{- end }}
{{- $internal := dict }}
{{- if lt (int .Values.brokers) 3 }}
{{- $internal = dict "offsets.topic.replication.factor" .Values.brokers "transaction.state.log.replication.factor" .Values.brokers "transaction.state.log.min.isr" 1 }}
{{- end }}
{{- include "thalweg.properties" (merge (omit .Values.config "config.providers") $internal) }}
{{- end }}

{{/* server.properties of the embedded controller. It asks brokers for the ends of their logs at their listener REPLICATION. */}}
{{- define "thalweg.controllerSettings" -}}
{{- $controller := include "thalweg.controllerListener" . | fromJson -}}
{{- $replication := index (include "thalweg.listeners" . | fromJsonArray) 1 -}}
process.roles=controller
controller.listener.names=CONTROLLER
log.dirs=/var/lib/thalweg/data
listeners=CONTROLLER://0.0.0.0:{{ $controller.values.port }}
listener.security.protocol.map=CONTROLLER:{{ $controller.values.protocol }},REPLICATION:{{ $replication.values.protocol }}
inter.broker.listener.name=REPLICATION
{{ include "thalweg.providers" .Values.controllers.config }}
{{- range $listener := list $controller $replication }}
{{- include "thalweg.security" (dict "root" $ "listener" $listener) }}
{{- end }}
{{- include "thalweg.properties" (omit .Values.controllers.config "config.providers") }}
{{- end }}

{{/* Properties of Apache Kafka's controllers beyond their addresses. */}}
{{- define "thalweg.apacheSettings" -}}
{{- $controller := include "thalweg.controllerListener" . | fromJson -}}
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:{{ $controller.values.protocol }}
controller.quorum.voters={{ include "thalweg.voters" . }}
log.dirs=/var/lib/thalweg/data
{{- $config := .Values.controllers.config }}
{{- if include "thalweg.jaasMechanisms" $controller | fromJsonArray }}
{{ include "thalweg.providers" $config }}
{{- $config = omit $config "config.providers" }}
{{- end }}
{{- include "thalweg.security" (dict "root" $ "listener" $controller) }}
{{- include "thalweg.properties" $config }}
{{- end }}
