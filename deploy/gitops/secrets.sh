#!/bin/sh
# Prints the Secrets that argocd.yaml and flux.yaml name, with new passwords and a new signing key.
# Encrypt them (sealed-secrets, SOPS) or put them into a vault, once: the log of an installation is
# signed by one key, and ends with it.
set -eu
namespace=${1:-joulie-system}

# A letter first: nats-server reads a variable as a number if it looks like one.
password() { printf p; openssl rand -hex 20; }

secret() {
  printf -- '---\napiVersion: v1\nkind: Secret\nmetadata: { name: %s, namespace: %s }\nstringData:\n' "$1" "$namespace"
}

secret joulie-users
for role in ADMIN PROJECTOR OPERATOR EXTENDER CONSOLE AUDITOR VIEWER ARCHIVIST AGENT SIMULATOR; do
  printf '  NATS_%s: %s\n' "$role" "$(password)"
done
secret joulie-console
printf '  token: %s\n' "$(password)"
secret joulie-signing
printf '  head.key: |\n'
openssl genpkey -algorithm ed25519 | sed 's/^/    /'
