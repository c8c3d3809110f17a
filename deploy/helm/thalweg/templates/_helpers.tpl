{{/* The name of everything in this release. */}}
{{- define "thalweg.name" -}}
{{- if contains "thalweg" .Release.Name }}{{ .Release.Name | trunc 40 | trimSuffix "-" }}{{ else }}{{ printf "%s-thalweg" .Release.Name | trunc 40 | trimSuffix "-" }}{{ end }}
{{- end }}

{{- define "thalweg.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}

{{- define "thalweg.selector" -}}
app.kubernetes.io/name: thalweg
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "thalweg.labels" -}}
{{ include "thalweg.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}

{{/* Properties of a map, a line each, in order. Whole numbers of YAML are floats here. */}}
{{- define "thalweg.properties" -}}
{{- range $key, $value := . }}
{{ $key }}={{ if kindIs "float64" $value }}{{ if eq (float64 (int64 $value)) $value }}{{ int64 $value }}{{ else }}{{ $value }}{{ end }}{{ else }}{{ $value }}{{ end }}
{{- end }}
{{- end }}

{{/* Where brokers find controllers. */}}
{{- define "thalweg.controllers" -}}
{{- $name := include "thalweg.name" . -}}
{{- $at := printf "%s-controllers.%s.svc" $name .Release.Namespace -}}
{{- if eq .Values.controllers.kind "external" -}}
{{ required "controllers.bootstrapServers is needed with controllers.kind=external: host:port, separated by commas" .Values.controllers.bootstrapServers }}
{{- else if eq .Values.controllers.kind "apache" -}}
{{- range $index := until (int .Values.controllers.replicas) }}{{ if $index }},{{ end }}{{ $name }}-controller-{{ $index }}.{{ $at }}:9093{{ end }}
{{- else -}}
{{ $name }}-controller-0.{{ $at }}:9093
{{- end -}}
{{- end }}

{{/* The voters of Apache Kafka's controllers, whose ids no broker uses. */}}
{{- define "thalweg.voters" -}}
{{- $name := include "thalweg.name" . -}}
{{- $at := printf "%s-controllers.%s.svc" $name .Release.Namespace -}}
{{- range $index := until (int .Values.controllers.replicas) }}{{ if $index }},{{ end }}100{{ $index }}@{{ $name }}-controller-{{ $index }}.{{ $at }}:9093{{ end }}
{{- end }}

{{- define "thalweg.podSecurity" -}}
runAsNonRoot: true
fsGroupChangePolicy: OnRootMismatch
seccompProfile: { type: RuntimeDefault }
{{- end }}

{{- define "thalweg.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: { drop: [ALL] }
{{- end }}
