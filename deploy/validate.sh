#!/usr/bin/env bash
# Checks what lies in deploy/ with the tools of those whose formats it is in: the chart with Helm, the schemas of the
# Kubernetes API and CRDs, rules and configuration with Prometheus's own tool. `npm test` checks what needs no tool.
#
#   deploy/validate.sh             a tool that is missing is built with Go or installed with pip into a cache, once
#   deploy/validate.sh --no-build  what a missing tool would check is left out, with a line that says so
#
# The exit code is the number of failed checks; a check that was left out does not count.
set -u
cd "$(dirname "$0")/.." || exit 1

may_build=yes
[ "${1:-}" = --no-build ] && may_build=no
cache="${XDG_CACHE_HOME:-$HOME/.cache}/galaxy-notify/tools"
mkdir -p "$cache"
export PATH="$PWD/node_modules/.bin:$PATH:$cache:$cache/python/bin"
failed=0

with_pip() { # program, requirement
  python3 -m venv "$cache/python" >"$cache/$1.log" 2>&1 &&
    "$cache/python/bin/pip" install --quiet "$2" >>"$cache/$1.log" 2>&1
}

# CRDs are files in the modules of those who wrote them; the module is not built.
with_crds() { # folder in the cache, module and version, files in it...
  command -v go >/dev/null || return 1
  local folder=$cache/$1 module=$2 dir file
  shift 2
  (
    cd "$(mktemp -d)" && go mod init tool && go mod download -json "$module" >module.json &&
      dir=$(node -p 'JSON.parse(require("node:fs").readFileSync("module.json", "utf8")).Dir') &&
      mkdir -p "$folder.new" &&
      for file in "$@"; do cp "$dir/$file" "$folder.new/" && chmod u+w "$folder.new/${file##*/}" || exit 1; done &&
      mv "$folder.new" "$folder"
  ) >"$folder.log" 2>&1
}

have_crds() { # as with_crds
  [ -d "$cache/$1" ] && return
  [ "$may_build" = yes ] && with_crds "$@" && return
  echo "left out, for lack of $2:"
  return 1
}

# A program of PATH, or one that Go builds: dev/go-programs.ts has its version.
have_go() { # program
  local program
  command -v "$1" >/dev/null && return
  if [ "$may_build" = yes ]; then program=$(node dev/go-programs.ts "$1"); else program=$(node dev/go-programs.ts --no-build "$1" 2>/dev/null); fi
  if [ -n "$program" ]; then
    PATH="$PATH:$(dirname "$program")"
    return
  fi
  echo "left out, for lack of $1:"
  return 1
}

have() { # program, how to get it...
  local program=$1
  shift
  command -v "$program" >/dev/null && return
  if [ "$may_build" = yes ]; then
    echo "getting $program, which may take minutes, once"
    "$@" && return
    echo "$program could not be had, see $cache/$program.log"
  fi
  echo "left out, for lack of $program:"
  return 1
}

check() { # name, command...
  local name=$1 output
  shift
  if output=$("$@" 2>&1); then
    echo "ok      $name"
  else
    echo "FAILED  $name"
    echo "$output"
    failed=$((failed + 1))
  fi
}

KUBERNETES=1.34.0
crds=(
  "crds-prometheus-operator github.com/prometheus-operator/prometheus-operator@v0.85.0
    example/prometheus-operator-crd/monitoring.coreos.com_prometheusrules.yaml
    example/prometheus-operator-crd/monitoring.coreos.com_servicemonitors.yaml
    example/prometheus-operator-crd/monitoring.coreos.com_podmonitors.yaml"
  "crds-keda github.com/kedacore/keda/v2@v2.21.0
    config/crd/bases/keda.sh_scaledobjects.yaml
    config/crd/bases/keda.sh_triggerauthentications.yaml"
)
chart=deploy/helm/galaxy-notify
matrix=()
for file in "$chart"/ci/*.yaml; do matrix+=("$(basename "$file" .yaml)"); done
rendered=$(mktemp -d)
trap 'rm -rf "$rendered"' EXIT

render() { # name of a file of values
  # A Helm that was not built by its makers takes an old Kubernetes for granted.
  helm template release "$chart" --namespace notify --kube-version "$KUBERNETES" --values "$chart/ci/$1.yaml" >"$rendered/$1.yaml"
}

# The values of another installation, with one value changed that must be refused.
refuses() { # what it must say, further arguments of Helm...
  local expected=$1 output
  shift
  if output=$(helm template release "$chart" --kube-version "$KUBERNETES" --values "$chart/ci/all-roles.yaml" "$@" 2>&1); then
    echo 'it was rendered'
    return 1
  fi
  grep -q -- "$expected" <<<"$output" || { echo "$output"; return 1; }
}

# What has a CRD is not part of the API of Kubernetes.
without_crds() {
  node -e '
    const documents = require("node:fs").readFileSync(process.argv[1], "utf8").split(/^---$/m);
    const hasCrd = (text) => /^apiVersion: (keda\.sh|monitoring\.coreos\.com)\//m.test(text);
    console.log(documents.filter((text) => !hasCrd(text)).join("---\n"));
  ' "$1"
}

if have_go helm; then
  for values in "${matrix[@]}"; do
    check "chart, linted with the values $values" helm lint --strict "$chart" --values "$chart/ci/$values.yaml"
    check "chart, rendered with the values $values" render "$values"
  done
  for values in "${matrix[@]}"; do
    check "chart, $values, environments that the service starts with, and no further secrets" \
      node deploy/chart-environment.ts "$rendered/$values.yaml"
  done
  # What must not be forgotten is asked for, instead of failing in the cluster.
  check 'chart, refuses to be installed without any value' bash -c "! helm template release $chart --kube-version $KUBERNETES"
  check 'chart, refuses a codec server that everybody may reach' \
    refuses networkPolicy.codecServerFrom --set-json 'networkPolicy.codecServerFrom=[]'
  check 'chart, refuses a secret that no process reads' \
    refuses 'no process of this chart reads' --set 'setup.secretVariables={NOTIFICATION_OUTBOX_POSTGRES_DSN}'
  check 'chart, refuses to scale by KEDA over TLS without a proof' \
    refuses 'KEDA speaks TLS' --set temporalTls.existingSecret= --set 'secrets.variables={NOTIFICATION_REDIS_PASSWORD}'
  check 'chart, refuses a monitor that finds nothing' \
    refuses monitoring.serviceMonitor.matchLabels --set-json 'monitoring.serviceMonitor.matchLabels=null'
  check 'chart, refuses an installation that reaches no private server' \
    refuses networkPolicy.privateRanges --set-json 'networkPolicy.egress=[]'
  check 'chart, refuses egress without peers' \
    refuses egress --set-json 'networkPolicy.egress=[{"ports":[{"port":6379}]}]'
  if have kubernetes-validate with_pip kubernetes-validate 'kubernetes-validate==1.37.*'; then
    for values in "${matrix[@]}"; do
      without_crds "$rendered/$values.yaml" >"$rendered/$values-api.yaml"
      check "chart, $values, has documents" grep -q '^kind: Deployment$' "$rendered/$values-api.yaml"
      check "chart, $values, against the schemas of Kubernetes" \
        kubernetes-validate --strict --kubernetes-version "${KUBERNETES%.*}" "$rendered/$values-api.yaml"
    done
  else
    echo '  the schemas of Kubernetes'
  fi
  for crd in "${crds[@]}"; do
    # shellcheck disable=SC2086 # words of the list above
    have_crds $crd || { echo '  what the chart renders for it'; crds=(); }
  done
  if [ "${#crds[@]}" -gt 0 ]; then
    for values in "${matrix[@]}"; do
      check "chart, $values, against CRDs" node deploy/chart-crds.ts "$rendered/$values.yaml" "$cache"/crds-*/*.yaml
    done
  fi
  check "chart, alarms and dashboards are those of deploy/" \
    node deploy/chart-monitoring.ts "$rendered/monitoring.yaml" "$rendered/rules.yaml"
else
  echo '  the chart'
fi

if have_go promtool; then
  check 'alarms' promtool check rules deploy/alerts/*.yaml
  check 'alarms, on made-up series' promtool test rules deploy/alerts/tests/*.yaml
  [ -s "$rendered/rules.yaml" ] && check 'alarms of the chart' promtool check rules "$rendered/rules.yaml"
  check 'configuration of Prometheus' promtool check config --syntax-only deploy/compose/prometheus.yaml
else
  echo '  alarms, and the configuration of Prometheus'
fi

# Unknown names and values of another type are warnings, of which a server that runs takes no notice.
known_to_temporal() {
  local output
  output=$(temporal-server validate-dynamic-config deploy/temporal/*.yaml) && ! grep -E 'warning|error' <<<"$output"
}
if have_go temporal-server; then
  check 'dynamic configuration of Temporal' known_to_temporal
else
  echo '  the dynamic configuration of Temporal'
fi

exit "$failed"
