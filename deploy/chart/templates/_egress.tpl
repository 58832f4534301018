{{/*
Which component may connect where. A rule without "to" is for addresses that no selector of a chart
names: those of the API server, of witnesses, of a bucket, of a webhook, of a collector of traces, and of a database and of a
broker of yours.
*/}}
{{- define "joulie.egress" -}}
{{- $read := list "projector" "operator" "extender" "console" "ledger" "migrate" "rebuild" "test" }}
{{- if .Values.archive.enabled }}{{ $read = append $read "archive" }}{{ end }}
{{- $api := list "operator" "release" "test" }}
{{- if eq (include "joulie.admission" .) "webhook" }}{{ $api = append $api "admission" }}{{ end }}
{{- if eq .Values.scheduler.mode "own" }}{{ $api = append $api "scheduler" }}{{ end }}
{{- if ne .Values.scheduler.configuration "energy" }}{{ $api = append $api "extender" }}{{ end }}
{{- if .Values.headsTo.configMap }}{{ $api = append $api "projector" }}{{ end }}
{{- $onBroker := concat $read (list "agent" "agent-caps") }}
{{- if .Values.callout.enabled }}
{{- $api = append $api "callout" }}
{{- $onBroker = concat $onBroker (list "callout" "signer") }}
{{- end }}
{{- $ports := list }}
{{- range .Values.networkPolicy.apiServerPorts }}{{ $ports = append $ports (dict "port" (int .)) }}{{ end }}
{{- include "joulie.egressOf" (dict "root" . "to" "broker" "of" $onBroker "egress" (list (include "joulie.toBroker" . | fromYaml))) }}
{{- include "joulie.egressOf" (dict "root" . "to" "api-server" "of" $api "egress" (list (dict "ports" $ports))) }}
{{- if not (include "joulie.sqlite" .) }}
{{- $port := dict "ports" (list (dict "port" (int .Values.networkPolicy.databasePort))) }}
{{- include "joulie.egressOf" (dict "root" . "to" "database" "of" $read "egress" (list $port)) }}
{{- end }}
{{- $metrics := dict "to" (list (dict "podSelector" (dict "matchLabels" (dict "app.kubernetes.io/name" "joulie")))) "ports" (list (dict "port" 9877)) }}
{{- include "joulie.egressOf" (dict "root" . "to" "metrics" "of" (list "test") "egress" (list $metrics)) }}
{{- if not .Values.nats.url }}
{{- $peers := dict "to" (list (include "joulie.podsOf" "nats" | fromYaml)) "ports" (list (dict "port" 6222)) }}
{{- include "joulie.egressOf" (dict "root" . "to" "brokers" "of" (list "nats") "egress" (list $peers)) }}
{{- end }}
{{- if eq .Values.scheduler.mode "own" }}
{{- $extender := dict "to" (list (include "joulie.podsOf" "extender" | fromYaml)) "ports" (list (dict "port" 9876)) }}
{{- include "joulie.egressOf" (dict "root" . "to" "extender" "of" (list "scheduler") "egress" (list $extender)) }}
{{- end }}
{{- with .Values.witnesses }}
{{- $ports := list }}
{{- range . }}{{ $ports = append $ports (dict "port" (include "joulie.portOf" (regexReplaceAll "^[^@]*@" . "") | int)) }}{{ end }}
{{- include "joulie.egressOf" (dict "root" $ "to" "witnesses" "of" (list "projector") "egress" (list (dict "ports" (uniq $ports)))) }}
{{- end }}
{{- $archive := ternary .Values.archive.bucket.url "" .Values.archive.enabled }}
{{- range $of, $url := dict "projector" .Values.headsTo.s3.url "archive" $archive }}
{{- if $url }}
{{- $port := dict "port" (include "joulie.portOf" $url | int) }}
{{- include "joulie.egressOf" (dict "root" $ "to" (printf "bucket-of-%s" $of) "of" (list $of) "egress" (list (dict "ports" (list $port)))) }}
{{- end }}
{{- end }}
{{- with .Values.console.notify }}
{{- if and $.Values.console.enabled (or .url .existingSecret) }}
{{- $port := dict "port" (ternary (include "joulie.portOf" .url) "443" (ne .url "") | int) }}
{{- include "joulie.egressOf" (dict "root" $ "to" "webhook" "of" (list "console") "egress" (list (dict "ports" (list $port)))) }}
{{- end }}
{{- end }}
{{- if and .Values.console.enabled .Values.console.traces.url }}
{{- $port := dict "port" (include "joulie.portOf" .Values.console.traces.url | int) }}
{{- include "joulie.egressOf" (dict "root" $ "to" "collector" "of" (list "console") "egress" (list (dict "ports" (list $port)))) }}
{{- end }}
{{- $meters := .Values.networkPolicy.metersTo }}
{{- if and (not $meters) (include "joulie.hasMeters" .) }}{{ $meters = list dict }}{{ end }}
{{- if $meters }}
{{- include "joulie.egressOf" (dict "root" . "to" "meters" "of" (list "operator") "egress" $meters) }}
{{- end }}
{{- end }}

{{/* Non-empty if the operator calls meters, prices or controllers of power at addresses of yours. */}}
{{- define "joulie.hasMeters" -}}
{{- .Values.operator.powerControllersSecret }}
{{- if eq (.Values.settings.ENABLE_FACILITY_METRICS | default "false" | lower) "true" }}true{{ end }}
{{- range .Values.settings }}{{ if contains "://" (toString .) }}true{{ end }}{{ end }}
{{- range .Values.files }}{{ if contains "://" . }}true{{ end }}{{ end }}
{{- end }}

{{/* The port of a URL. */}}
{{- define "joulie.portOf" -}}
{{- $url := urlParse . }}
{{- regexFind "[0-9]+$" (regexFind ":[0-9]+$" $url.host) | default (ternary "443" "80" (eq $url.scheme "https")) }}
{{- end }}

{{- define "joulie.podsOf" -}}
podSelector:
  matchLabels: {{- include "joulie.selector" (dict "part" .) | nindent 4 }}
{{- end }}

{{/* The broker of the chart, or the ports of the addresses of yours. */}}
{{- define "joulie.toBroker" -}}
{{- if .Values.nats.url }}
ports:
  {{- range splitList "," .Values.nats.url | uniq }}
  - port: {{ regexFind ":[0-9]+/?$" (trim .) | trimAll ":/" | default "4222" }}
  {{- end }}
{{- else }}
to:
  - {{- include "joulie.podsOf" "nats" | nindent 4 }}
ports: [{ port: 4222 }]
{{- end }}
{{- end }}

{{- define "joulie.egressOf" }}
---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {{- include "joulie.meta" (dict "root" .root "part" (printf "to-%s" .to)) | nindent 2 }}
spec:
  podSelector:
    matchLabels: { app.kubernetes.io/name: joulie }
    matchExpressions:
      - { key: app.kubernetes.io/component, operator: In, values: {{ toJson .of }} }
  policyTypes: [Egress]
  egress: {{- toYaml .egress | nindent 4 }}
{{- end }}
