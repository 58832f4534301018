{{/* A bucket with the API of S3: what a component needs that keeps something in it. */}}
{{- define "joulie.bucketEnv" -}}
- { name: S3_REGION, value: {{ .region | quote }} }
- { name: S3_ACCESS_KEY_FILE, value: /etc/joulie/s3/access-key }
- { name: S3_SECRET_KEY_FILE, value: /etc/joulie/s3/secret-key }
{{- if .caSecret }}
- { name: S3_CA_FILE, value: /etc/joulie/s3/ca.crt }
{{- end }}
{{- end }}

{{/* The Secrets with its keys and its authority, mounted at /etc/joulie/s3. */}}
{{- define "joulie.bucketVolume" -}}
- name: s3
  projected:
    defaultMode: 0440
    sources:
      - secret: { name: {{ .existingSecret }}, items: [{ key: access-key, path: access-key }, { key: secret-key, path: secret-key }] }
      {{- with .caSecret }}
      - secret: { name: {{ . }}, items: [{ key: ca.crt, path: ca.crt }] }
      {{- end }}
{{- end }}
