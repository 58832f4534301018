{{/* What the pods of both DaemonSets share. They need nothing of the API server. */}}
{{- define "joulie.agentPod" -}}
serviceAccountName: joulie-agent
automountServiceAccountToken: false
enableServiceLinks: false
securityContext:
  runAsUser: 0
  runAsGroup: 0
  seccompProfile: { type: RuntimeDefault }
{{- with .Values.agent.runtimeClassName }}
runtimeClassName: {{ . }}
{{- end }}
{{- include "joulie.pullSecrets" . }}
{{- with include "joulie.chosen" (dict "root" . "part" "agent" "key" "priorityClassName") }}
priorityClassName: {{ . }}
{{- end }}
{{- with .Values.agent.affinity }}
affinity: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.agent.nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.agent.tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{- define "joulie.agentContainer" -}}
image: {{ include "joulie.image" . }}
imagePullPolicy: {{ include "joulie.pullPolicy" . }}
{{ include "joulie.env" (dict "root" .root "part" "agent" "withoutDatabase" true "byToken" .root.Values.callout.enabled) }}
  - { name: NODE_NAME, valueFrom: { fieldRef: { fieldPath: spec.nodeName } } }
{{- if .root.Values.agent.runtimeClassName }}
  # NVIDIA's runtime then gives NVML and the cards.
  - { name: NVIDIA_VISIBLE_DEVICES, value: all }
  - { name: NVIDIA_DRIVER_CAPABILITIES, value: utility }
{{- end }}
ports:
  - { name: metrics, containerPort: 9877 }
{{ include "joulie.probes" . }}
resources: {{- toYaml .root.Values.agent.resources | nindent 2 }}
{{- end }}

{{- define "joulie.agentMounts" -}}
- { name: tmp, mountPath: /tmp }
- { name: secrets, mountPath: /etc/joulie/secrets, readOnly: true }
{{- if include "joulie.natsCa" . }}
- { name: nats-ca, mountPath: /etc/joulie/nats, readOnly: true }
{{- end }}
{{- if .Values.files }}
- { name: files, mountPath: /etc/joulie/files, readOnly: true }
{{- end }}
{{- include "joulie.extraMounts" (dict "root" . "part" "agent") }}
{{- end }}

{{- define "joulie.agentVolumes" -}}
- { name: tmp, emptyDir: {} }
{{ include "joulie.secretsVolume" (dict "root" . "part" "agent" "withoutDatabase" true "byToken" .Values.callout.enabled) }}
{{- if include "joulie.natsCa" . }}
- name: nats-ca
  secret: { secretName: {{ include "joulie.natsCa" . }}, items: [{ key: ca.crt, path: ca.crt }] }
{{- end }}
{{- if .Values.files }}
- { name: files, configMap: { name: joulie-files } }
{{- end }}
{{- include "joulie.extraVolumes" (dict "root" . "part" "agent") }}
{{- end }}
