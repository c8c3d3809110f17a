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

{{/* The StatefulSets of brokers, as JSON: the end of the name, the zone, the first node id, the number of brokers. */}}
{{- define "thalweg.sets" -}}
{{- $brokers := int .Values.brokers -}}
{{- $zones := .Values.zones.names -}}
{{- $sets := list -}}
{{- if $zones -}}
{{- range $at, $zone := $zones -}}
{{- $count := add (div $brokers (len $zones)) (ternary 1 0 (lt $at (int (mod $brokers (len $zones))))) -}}
{{- $sets = append $sets (dict "suffix" (printf "-z%d" (add1 $at)) "zone" $zone "first" (mul 100 (add1 $at)) "count" $count) -}}
{{- end -}}
{{- else -}}
{{- $sets = append $sets (dict "suffix" "" "zone" "" "first" 0 "count" $brokers) -}}
{{- end -}}
{{ toJson $sets }}
{{- end }}

{{/* The brokers, as JSON: node id and pod. */}}
{{- define "thalweg.brokers" -}}
{{- $name := include "thalweg.name" . -}}
{{- $brokers := list -}}
{{- range $set := include "thalweg.sets" . | fromJsonArray -}}
{{- range $index := until (int $set.count) -}}
{{- $id := add (int $set.first) $index -}}
{{- $brokers = append $brokers (dict "id" $id "pod" (printf "%s-broker%s-%d" $name $set.suffix $id)) -}}
{{- end -}}
{{- end -}}
{{ toJson $brokers }}
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

{{/* Where the pods of a component (context: root, component) run. */}}
{{- define "thalweg.spread" -}}
{{- $values := .root.Values -}}
{{- $rules := $values.topologySpread -}}
{{- if and $values.zones.fromNode (eq .component "broker") -}}
{{- $zone := dict "topologyKey" "topology.kubernetes.io/zone" "maxSkew" 1 "whenUnsatisfiable" "DoNotSchedule" -}}
{{- $others := list -}}
{{- range $rule := $rules }}{{ if ne $rule.topologyKey $zone.topologyKey }}{{ $others = append $others $rule }}{{ end }}{{ end -}}
{{- $rules = prepend $others $zone -}}
{{- end -}}
{{- range $rule := $rules }}
- {{ $rule | toYaml | indent 2 | trim }}
  labelSelector:
    matchLabels:
      {{- include "thalweg.selector" $.root | nindent 6 }}
      app.kubernetes.io/component: {{ $.component }}
{{- end }}
{{- end }}

{{/* A disruption budget of minAvailable, or else of maxUnavailable. */}}
{{- define "thalweg.budget" -}}
{{- if not (kindIs "invalid" .minAvailable) -}}
minAvailable: {{ .minAvailable }}
{{- else -}}
maxUnavailable: {{ .maxUnavailable }}
{{- end -}}
{{- end }}

{{/* The requests and limits of a broker. */}}
{{- define "thalweg.resources" -}}
{{- if not (hasKey .Values.plans .Values.plan) -}}
{{- fail (printf "plan: there is no %q; expected one of %s" .Values.plan (keys .Values.plans | sortAlpha | join ", ")) -}}
{{- end -}}
{{- mergeOverwrite (deepCopy (index .Values.plans .Values.plan)) .Values.resources | toYaml -}}
{{- end }}
