{{/* Names are fixed: the cluster holds one installation, because NodeTwins and the Lease have none. */}}

{{- define "joulie.labels" -}}
app.kubernetes.io/name: joulie
app.kubernetes.io/component: {{ .part }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ .root.Chart.Name }}-{{ .root.Chart.Version }}
{{- end }}

{{- define "joulie.selector" -}}
app.kubernetes.io/name: joulie
app.kubernetes.io/component: {{ .part }}
{{- end }}

{{- define "joulie.meta" -}}
name: joulie-{{ .part }}
namespace: {{ .root.Release.Namespace }}
labels: {{- include "joulie.labels" . | nindent 2 }}
{{- end }}

{{/* The values of a component. The Jobs, the hooks and the pod of `helm test` share "jobs", and both
DaemonSets of agents "agent". */}}
{{- define "joulie.ownValues" -}}
{{- $jobs := list "migrate" "rebuild" "release" "test" }}
{{- $part := ternary "callout" (trimSuffix "-caps" .part) (eq .part "signer") }}
{{- index .root.Values (ternary "jobs" $part (has .part $jobs)) | toJson }}
{{- end }}

{{/* The value of a component under "key", else that of all components. */}}
{{- define "joulie.chosen" -}}
{{- with get (include "joulie.ownValues" . | fromJson) .key | default (get .root.Values .key) }}{{ toYaml . }}{{ end }}
{{- end }}

{{/* The maps of all components and of this one, merged; lists, one after the other. */}}
{{- define "joulie.both" -}}
{{- $own := get (include "joulie.ownValues" . | fromJson) .key }}
{{- $all := get .root.Values .key }}
{{- if kindIs "slice" $all }}
{{- with concat $all ($own | default list) }}{{ toYaml . }}{{ end }}
{{- else }}
{{- with merge dict ($own | default dict) $all }}{{ toYaml . }}{{ end }}
{{- end }}
{{- end }}

{{/* The image of all components, or what `image` of this one changes of it. */}}
{{- define "joulie.image" -}}
{{- $own := (include "joulie.ownValues" . | fromJson).image | default dict }}
{{- if eq .part "scheduler" }}{{ $own = dict }}{{ end }}{{/* its image is that of kube-scheduler */}}
{{- $all := .root.Values.image }}
{{- $pinned := ternary $own $all (not (empty (omit $own "pullPolicy"))) }}
{{- with $own.registry | default $all.registry }}{{ trimSuffix "/" . }}/{{ end }}
{{- $own.repository | default $all.repository }}
{{- if $pinned.digest }}@{{ $pinned.digest }}{{ else }}:{{ $pinned.tag | default $all.tag | default .root.Chart.AppVersion }}{{ end }}
{{- end }}

{{- define "joulie.pullPolicy" -}}
{{- $own := (include "joulie.ownValues" . | fromJson).image | default dict }}
{{- $policy := "" }}
{{- if kindIs "map" $own }}{{ $policy = $own.pullPolicy }}{{ end }}
{{- $policy | default .root.Values.image.pullPolicy }}
{{- end }}

{{/* Labels and annotations of pods. The checksum restarts what reads the configuration: "config" is
that of a component which does not read the settings. */}}
{{- define "joulie.podMeta" -}}
labels:
  {{- include "joulie.labels" . | nindent 2 }}
  {{- with include "joulie.both" (merge (dict "key" "podLabels") .) }}{{ . | nindent 2 }}{{ end }}
annotations:
  {{- $config := .config | default (include (print .root.Template.BasePath "/settings.yaml") .root) }}
  checksum/config: {{ print $config (toJson .root.Values.tls) | sha256sum }}
  {{- with include "joulie.both" (merge (dict "key" "podAnnotations") .) }}{{ . | nindent 2 }}{{ end }}
{{- end }}

{{/* Non-empty if the parts share SQLite on the volume of the projector. */}}
{{- define "joulie.sqlite" -}}
{{- if not .Values.database.existingSecret }}true{{ end }}
{{- end }}

{{/* What a component may do with the database: migrate, ledger, writer or reader. */}}
{{- define "joulie.databaseRight" -}}
{{- if eq .part "migrate" }}migrate{{ else if eq .part "ledger" }}ledger{{ else if has .part (list "projector" "rebuild") }}writer{{ else }}reader{{ end }}
{{- end }}

{{/* Non-empty if the tables of the ledger are a file on a volume of their own. */}}
{{- define "joulie.ledgerVolume" -}}
{{- if and .Values.ledger.enabled (include "joulie.sqlite" .) }}true{{ end }}
{{- end }}

{{- define "joulie.urlKey" -}}
{{- if .root.Values.database.userPerRight }}url-{{ include "joulie.databaseRight" . }}{{ else }}{{ .root.Values.database.urlKey }}{{ end }}
{{- end }}

{{- define "joulie.natsUrl" -}}
{{- if .Values.nats.url }}{{ .Values.nats.url }}
{{- else -}}
{{- $urls := list -}}
{{- range until (int .Values.nats.replicas) }}
{{- $urls = append $urls (printf "tls://joulie-nats-%d.joulie-nats.%s.svc:4222" . $.Release.Namespace) }}
{{- end }}
{{- join "," $urls }}
{{- end }}
{{- end }}

{{- define "joulie.natsUsers" -}}
{{ .Values.nats.usersSecret | default "joulie-nats-users" }}
{{- end }}

{{/* The Secret with the key that signs the identities of agents. */}}
{{- define "joulie.issuer" -}}
{{ .Values.callout.existingSecret | default "joulie-callout-issuer" }}
{{- end }}

{{- define "joulie.headKey" -}}
{{ .Values.signingKey.existingSecret | default "joulie-head-key" }}
{{- end }}

{{/* The Secret with the authority of the broker, if there is one. */}}
{{- define "joulie.natsCa" -}}
{{- if .Values.nats.url }}{{ .Values.nats.caSecret }}{{ else }}joulie-nats-tls{{ end }}
{{- end }}

{{- define "joulie.archiveClaim" -}}
{{ .Values.archive.existingClaim | default "joulie-archive" }}
{{- end }}

{{/* OpenShift gives each namespace its own range of users and groups, and refuses others. */}}
{{- define "joulie.openshift" -}}
{{- if eq (toString .Values.openshift) "auto" }}
{{- if .Capabilities.APIVersions.Has "security.openshift.io/v1" }}true{{ end }}
{{- else if .Values.openshift }}true{{ end }}
{{- end }}

{{/* The ledger is another user than the projector: neither writes the files of the other. */}}
{{- define "joulie.podSecurity" -}}
{{- $fixed := list }}
{{- if include "joulie.openshift" .root }}{{ $fixed = list "runAsUser" "runAsGroup" "fsGroup" }}{{ end }}
{{- $found := dict }}
{{- $own := dict }}
{{- if and (eq .part "ledger") .root.Values.ledger.runAsUser }}{{ $own = dict "runAsUser" .root.Values.ledger.runAsUser }}{{ end }}
{{- range $key, $value := merge $own .root.Values.podSecurityContext }}
{{- if not (or (has $key $fixed) (kindIs "invalid" $value)) }}{{ $_ := set $found $key $value }}{{ end }}
{{- end }}
{{- toYaml $found }}
{{- end }}

{{- define "joulie.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: { drop: [ALL] }
{{- end }}

{{/* Of an init container that runs a few lines of the shell. */}}
{{- define "joulie.shellResources" -}}
requests: { cpu: 10m, memory: 16Mi }
limits: { memory: 64Mi }
{{- end }}

{{/* What all pods of the chart share. "serviceLinks" adds the addresses of Services to the environment. */}}
{{- define "joulie.podBasics" -}}
enableServiceLinks: {{ hasKey . "serviceLinks" }}
securityContext: {{- include "joulie.podSecurity" . | nindent 2 }}
{{- include "joulie.pullSecrets" .root }}
{{- range $key := list "priorityClassName" "nodeSelector" "tolerations" }}
{{- with include "joulie.chosen" (merge (dict "key" $key) $) }}
{{ $key }}: {{- . | nindent 2 }}
{{- end }}
{{- end }}
{{- with include "joulie.chosen" (merge (dict "key" "topologySpreadConstraints") .) }}
topologySpreadConstraints:
  {{- range fromYamlArray . }}
  {{- $same := dict "matchLabels" (include "joulie.selector" $ | fromYaml) }}
  - {{- toYaml (merge (deepCopy .) (dict "labelSelector" $same)) | nindent 4 }}
  {{- end }}
{{- end }}
{{- end }}

{{- define "joulie.pullSecrets" -}}
{{- with .Values.image.pullSecrets }}
imagePullSecrets: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/* How pods get their scheduler: the version of policies, "webhook", or nothing. */}}
{{- define "joulie.admission" -}}
{{- $asked := ternary .Values.scheduler.admission "never" (eq .Values.scheduler.mode "own") }}
{{- $served := "" }}
{{- range list "v1beta1" "v1" }}
{{- if $.Capabilities.APIVersions.Has (printf "admissionregistration.k8s.io/%s/MutatingAdmissionPolicy" .) }}{{ $served = . }}{{ end }}
{{- end }}
{{- if eq $asked "policy" }}{{ $served | default (ternary "v1" "v1beta1" (semverCompare ">=1.36-0" .Capabilities.KubeVersion.Version)) }}
{{- else if eq $asked "auto" }}{{ $served | default "webhook" }}
{{- else if eq $asked "webhook" }}webhook
{{- end }}
{{- end }}

{{/* A namespace with the label, but not the one of the scheduler itself. */}}
{{- define "joulie.admittedNamespaces" -}}
namespaceSelector:
  matchLabels: { joulie.io/schedule: "true" }
  matchExpressions:
    - { key: kubernetes.io/metadata.name, operator: NotIn, values: [{{ .Release.Namespace }}] }
{{- end }}

{{/*
Pods that name a scheduler or a node stay as they are, and pods that the extender exempts from its
rules: joulie_projections.pods.classify.exemption. A tenant can write an owner or a name of a class;
only the pod's single node, or the priority that the API server sets, makes them true.
*/}}
{{- define "joulie.admittedPods" -}}
- name: names-no-scheduler
  expression: "!has(object.spec.schedulerName) || object.spec.schedulerName in ['', 'default-scheduler']"
- name: names-no-node
  expression: "!has(object.spec.nodeName) || object.spec.nodeName == ''"
- name: is-not-of-a-daemonset
  expression: >-
    !(has(object.metadata.ownerReferences)
    && object.metadata.ownerReferences.exists(o,
      o.kind == 'DaemonSet' && o.apiVersion.startsWith('apps/') && has(o.controller) && o.controller)
    && has(object.spec.affinity)
    && has(object.spec.affinity.nodeAffinity)
    && has(object.spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution)
    && object.spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms.size() == 1
    && object.spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms.all(t,
      (!has(t.matchExpressions) || t.matchExpressions.size() == 0)
      && has(t.matchFields) && t.matchFields.size() == 1 && t.matchFields.all(f,
        f.key == 'metadata.name' && f.operator == 'In' && has(f.values) && f.values.size() == 1)))
- name: is-not-critical
  expression: >-
    !(has(object.spec.priorityClassName)
    && object.spec.priorityClassName in ['system-cluster-critical', 'system-node-critical']
    && has(object.spec.priority) && object.spec.priority >= 2000000000)
{{- end }}

{{/* Replicas on different nodes, where the nodes suffice; with SQLite on the projector's node, which
no affinity of yours changes: the volume is there. */}}
{{- define "joulie.affinity" -}}
{{- $yours := include "joulie.chosen" (merge (dict "key" "affinity") .) | fromYaml | default dict }}
{{- if and (include "joulie.sqlite" .root) (ne .part "projector") }}
{{- $term := dict "topologyKey" "kubernetes.io/hostname" "labelSelector" (dict "matchLabels" (include "joulie.selector" (dict "part" "projector") | fromYaml)) }}
{{- $beside := dict "podAffinity" (dict "requiredDuringSchedulingIgnoredDuringExecution" (list $term)) }}
affinity: {{- toYaml (merge $beside $yours) | nindent 2 }}
{{- else }}
{{- include "joulie.antiAffinity" . }}
{{- end }}
{{- end }}

{{- define "joulie.antiAffinity" -}}
{{- $yours := include "joulie.chosen" (merge (dict "key" "affinity") .) | fromYaml | default dict }}
{{- if not (hasKey $yours "podAntiAffinity") }}{{ $yours = merge $yours (include "joulie.apart" . | fromYaml) }}{{ end }}
affinity: {{- toYaml $yours | nindent 2 }}
{{- end }}

{{- define "joulie.apart" -}}
podAntiAffinity:
  preferredDuringSchedulingIgnoredDuringExecution:
    - weight: 100
      podAffinityTerm:
        topologyKey: kubernetes.io/hostname
        labelSelector:
          matchLabels: {{- include "joulie.selector" . | nindent 12 }}
{{- end }}

{{/* The environment of a component: of all components first, then its own. */}}
{{- define "joulie.env" -}}
{{- $broker := index (.root.Files.Get "files/parts.json" | fromJson) .part -}}
envFrom:
  - configMapRef: { name: joulie-settings }
env:
  - { name: POD_NAME, valueFrom: { fieldRef: { fieldPath: metadata.name } } }
  - { name: POD_NAMESPACE, valueFrom: { fieldRef: { fieldPath: metadata.namespace } } }
  - { name: JOULIE_CLUSTER, value: {{ .root.Values.cluster | quote }} }
  - { name: JOULIE_DATA, value: /var/lib/joulie }
  - { name: METRICS_ADDR, value: ":9877" }
  - { name: NATS_URL, value: {{ include "joulie.natsUrl" .root | quote }} }
  - { name: NATS_REPLICAS, value: {{ .root.Values.nats.replicas | quote }} }
{{- if .byToken }}
  # The token of the pod, which the kubelet renews, in place of a user.
  - { name: NATS_CREDS_FILE, value: /etc/joulie/secrets/token }
{{- else }}
  - { name: NATS_USER, value: {{ $broker.role }} }
  - { name: NATS_INBOX, value: {{ $broker.inbox }} }
  - { name: NATS_PASSWORD_FILE, value: /etc/joulie/secrets/nats-password }
{{- end }}
{{- if include "joulie.natsCa" .root }}
  - { name: NATS_CA_FILE, value: /etc/joulie/nats/ca.crt }
{{- end }}
{{- if not (or (include "joulie.sqlite" .root) .withoutDatabase) }}
  - { name: DATABASE_URL_FILE, value: /etc/joulie/secrets/database-url }
{{- else if and (include "joulie.ledgerVolume" .root) (not .withoutDatabase) }}
  - { name: DATABASE_URL, value: "sqlite:////var/lib/joulie/joulie.db?ledger=/var/lib/joulie-ledger" }
{{- end }}
{{- if not .withoutDatabase }}
  - { name: MIGRATION_TIMEOUT, value: 5m } # the Job of an installation starts with the other pods
{{- end }}
{{- with include "joulie.both" (merge (dict "key" "extraEnv") .) }}{{ . | nindent 2 }}{{ end }}
{{- end }}

{{/* The secrets of the environment above, as files: descriptions of pods and children show no file. */}}
{{- define "joulie.secretsVolume" -}}
{{- $broker := index (.root.Files.Get "files/parts.json" | fromJson) .part -}}
- name: secrets
  projected:
    defaultMode: 0440
    sources:
      {{- if .byToken }}
      - serviceAccountToken: { audience: joulie-broker, expirationSeconds: 3600, path: token }
      {{- else }}
      - secret:
          name: {{ include "joulie.natsUsers" .root }}
          items: [{ key: NATS_{{ upper $broker.role }}, path: nats-password }]
      {{- end }}
      {{- if not (or (include "joulie.sqlite" .root) .withoutDatabase) }}
      - secret:
          name: {{ .root.Values.database.existingSecret }}
          items: [{ key: {{ include "joulie.urlKey" . }}, path: database-url }]
      {{- end }}
{{- end }}

{{- define "joulie.mounts" -}}
- { name: data, mountPath: /var/lib/joulie{{ if and (include "joulie.sqlite" .root) (has (include "joulie.databaseRight" .) (list "reader" "ledger")) }}, readOnly: true{{ end }} }
{{- if include "joulie.ledgerVolume" .root }}
- { name: ledger, mountPath: /var/lib/joulie-ledger{{ if ne .part "ledger" }}, readOnly: true{{ end }} }
{{- end }}
- { name: tmp, mountPath: /tmp }
- { name: secrets, mountPath: /etc/joulie/secrets, readOnly: true }
{{- if include "joulie.natsCa" .root }}
- { name: nats-ca, mountPath: /etc/joulie/nats, readOnly: true }
{{- end }}
{{- if .root.Values.files }}
- { name: files, mountPath: /etc/joulie/files, readOnly: true }
{{- end }}
{{- include "joulie.extraMounts" . }}
{{- end }}

{{- define "joulie.extraMounts" -}}
{{- with include "joulie.both" (merge (dict "key" "extraVolumeMounts") .) }}{{ print "\n" . }}{{ end }}
{{- end }}

{{- define "joulie.extraVolumes" -}}
{{- with include "joulie.both" (merge (dict "key" "extraVolumes") .) }}{{ print "\n" . }}{{ end }}
{{- end }}

{{/* All volumes but "data" of the projector, which its StatefulSet makes. "as" names another component
whose environment the container has. */}}
{{- define "joulie.volumes" -}}
- { name: tmp, emptyDir: {} }
{{ include "joulie.secretsVolume" (dict "root" .root "part" (.as | default .part)) }}
{{- if include "joulie.natsCa" .root }}
- name: nats-ca
  secret: { secretName: {{ include "joulie.natsCa" .root }}, items: [{ key: ca.crt, path: ca.crt }] }
{{- end }}
{{- if .root.Values.files }}
- { name: files, configMap: { name: joulie-files } }
{{- end }}
{{- if and (ne .part "projector") (include "joulie.sqlite" .root) }}
- { name: data, persistentVolumeClaim: { claimName: data-joulie-projector-0 } }
{{- else if ne .part "projector" }}
- { name: data, emptyDir: {} }
{{- end }}
{{- if include "joulie.ledgerVolume" .root }}
- { name: ledger, persistentVolumeClaim: { claimName: joulie-ledger } }
{{- end }}
{{- include "joulie.extraVolumes" . }}
{{- end }}

{{/* "isReady" replaces the probe of the port for metrics. A process on a busy node needs minutes to
start and seconds to answer: a restart would only cost more of its CPU. */}}
{{- define "joulie.probes" -}}
startupProbe:
  httpGet: { path: /healthz, port: metrics }
  periodSeconds: 2
  timeoutSeconds: 10
  failureThreshold: 300
livenessProbe:
  httpGet: { path: /healthz, port: metrics }
  periodSeconds: 10
  timeoutSeconds: 10
  failureThreshold: 6
readinessProbe:
  httpGet: {{ .isReady | default "{ path: /readyz, port: metrics }" }}
  periodSeconds: 5
  timeoutSeconds: 5
{{- end }}

{{/* The container of a component that serves metrics. "extra" holds more env, "ports" more ports. */}}
{{- define "joulie.container" -}}
- name: {{ .part }}
  image: {{ include "joulie.image" . }}
  imagePullPolicy: {{ include "joulie.pullPolicy" . }}
  args: {{ .args | default (list .part) | toJson }}
  {{- include "joulie.env" . | nindent 2 }}
  {{- with .env }}{{ . | nindent 4 }}{{ end }}
  ports:
    - { name: metrics, containerPort: 9877 }
    {{- with .ports }}{{ . | nindent 4 }}{{ end }}
  {{- include "joulie.probes" . | nindent 2 }}
  resources: {{- toYaml (index .root.Values .part "resources") | nindent 4 }}
  securityContext: {{- include "joulie.containerSecurity" . | nindent 4 }}
  volumeMounts:
    {{- include "joulie.mounts" . | nindent 4 }}
    {{- with .volumeMounts }}{{ . | nindent 4 }}{{ end }}
{{- end }}

{{/* The documents of a file of deploy/, for the namespace of the release, without the Namespace. */}}
{{- define "joulie.manifests" -}}
{{- $account := printf "system:serviceaccount:%s:" .root.Release.Namespace }}
{{- $text := .root.Files.Get .file | replace "system:serviceaccount:joulie-system:" $account }}
{{- $selector := printf "{%s}" (include "joulie.selectorPairs" .root) }}
{{- range splitList "\n---\n" ($text | replace "{'joulie.io/managed': 'true'}" $selector) }}
{{- $tree := fromYaml . }}
{{- /* Without an extender no pod is nominated; the mark of a pod is written by the same right. */}}
{{- $nominates := or (ne $.root.Values.scheduler.mode "none") $.root.Values.operator.requests }}
{{- if and $tree (ne $tree.kind "Namespace") (or $nominates (ne $tree.metadata.name "joulie-nominations")) }}
{{- if eq (dig "metadata" "namespace" "" $tree) "joulie-system" }}
{{- $_ := set $tree.metadata "namespace" $.root.Release.Namespace }}
{{- end }}
{{- range $tree.subjects }}{{ $_ := set . "namespace" $.root.Release.Namespace }}{{ end }}
{{- $_ := set $tree.metadata "labels" (include "joulie.labels" $ | fromYaml) }}
{{- if and (eq $tree.kind "ClusterRole") (not $nominates) }}
{{- $rules := list }}
{{- range $tree.rules }}{{ if ne (first .resources) "pods/status" }}{{ $rules = append $rules . }}{{ end }}{{ end }}
{{- $_ := set $tree "rules" $rules }}
{{- end }}
---
{{ toYaml $tree }}
{{- end }}
{{- end }}
{{- end }}

{{/* The labels of NODE_SELECTOR, as the entries of a map of CEL. */}}
{{- define "joulie.selectorPairs" -}}
{{- $pairs := list }}
{{- range splitList "," (dig "NODE_SELECTOR" "joulie.io/managed=true" .Values.settings) }}
{{- $pair := splitn "=" 2 . }}
{{- if $pair._1 }}{{ $pairs = append $pairs (printf "'%s': '%s'" (trim $pair._0) (trim $pair._1)) }}{{ end }}
{{- end }}
{{- join ", " $pairs }}
{{- end }}

{{/* The configuration of kube-scheduler from deploy/, with the extender at another address. */}}
{{- define "joulie.schedulerConfig" -}}
{{- $file := ternary "kube-scheduler.yaml" (printf "kube-scheduler-%s.yaml" .root.Values.scheduler.configuration) (eq .root.Values.scheduler.configuration "energy") }}
{{- $config := .root.Files.Get (printf "files/%s" $file) | fromYaml }}
{{- range $config.extenders }}
{{- $_ := set . "urlPrefix" (.urlPrefix | replace "https://joulie-extender.joulie-system.svc.cluster.local:9876" $.url) }}
{{- if and .managedResources $.root.Values.settings.GPU_RESOURCES }}
{{- $managed := list }}
{{- range splitList "," $.root.Values.settings.GPU_RESOURCES }}
{{- $managed = append $managed (dict "name" (trim .) "ignoredByScheduler" false) }}
{{- end }}
{{- $_ := set . "managedResources" $managed }}
{{- end }}
{{- end }}
{{- with .root.Values.scheduler.percentageOfNodesToScore }}
{{- $_ := set $config "percentageOfNodesToScore" (int .) }}
{{- end }}
{{- if .own }}
{{- $_ := set (first $config.profiles) "schedulerName" .root.Values.scheduler.name }}
{{- $_ := set $config "leaderElection" (dict "leaderElect" true "resourceNamespace" .root.Release.Namespace "resourceName" "joulie-scheduler") }}
{{- end }}
{{- toYaml $config }}
{{- end }}

{{- define "joulie.natsConf" -}}
{{- $conf := .Files.Get "files/nats.conf" }}
{{- if .Values.callout.enabled }}
{{- $lines := splitList "\n" (.Files.Get "files/callout.conf") }}
{{- $conf = replace "\naccounts {\n" (printf "\naccounts {\n  %s\n" (first $lines)) $conf }}
{{- $conf = print $conf (index $lines 1) "\n" }}
{{- end }}
{{- $conf }}
{{- if gt (int .Values.nats.replicas) 1 }}
cluster {
  name: joulie
  listen: "0.0.0.0:6222"
  tls {
    cert_file: /etc/joulie/nats/tls.crt
    key_file: /etc/joulie/nats/tls.key
    ca_file: /etc/joulie/nats/ca.crt
    verify: true
  }
  routes: [
    {{- range until (int .Values.nats.replicas) }}
    "nats://joulie-nats-{{ . }}.joulie-nats.{{ $.Release.Namespace }}.svc:6222"
    {{- end }}
  ]
}
{{- end }}
{{- end }}
