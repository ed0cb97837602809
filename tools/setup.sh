#!/usr/bin/env bash
# Make this checkout runnable: a virtual environment with the pinned packages, and a Java runtime for
# ZooKeeper and Spark. Safe to run again and after an interruption: the stamp is written last.
#
#   tools/setup.sh demo     what `make demo` needs
#   tools/setup.sh dev      the same and the tools of `make test` and `make lint`
#   tools/setup.sh fuzz     the same and the fuzzer of `make fuzz`
set -euo pipefail
cd "$(dirname -- "${BASH_SOURCE[0]}")/.."

extras=${1:-dev}
venv=.venv
stamp=$venv/.installed-$extras
say() { printf 'setup: %s\n' "$*" >&2; }
die() {
  say "$*"
  exit 1
}

python=${PYTHON:-python3}
command -v "$python" >/dev/null || die "python3 is missing: install Python 3.11 or newer, or say PYTHON=/path/to/python3"
"$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' ||
  die "$("$python" --version) is too old: isthmus needs Python 3.11 or newer (PYTHON=/path/to/python3 chooses another)"

can_apt() { [[ $(id -u) == 0 ]] && command -v apt-get >/dev/null; }
apt_updated=
apt_install() {
  if [[ -z $apt_updated ]]; then
    say "apt-get update"
    apt-get update -qq
    apt_updated=yes
  fi
  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@" >/dev/null
}

java_major() {
  local java=${JAVA_HOME:+$JAVA_HOME/bin/}java
  "$java" -version 2>&1 | sed -nE 's/.*version "([0-9]+).*/\1/p' | head -n 1
}

ensure_java() {
  local major
  major=$(java_major 2>/dev/null || true)
  if [[ -n $major && $major -ge 17 ]]; then return; fi
  can_apt || die "Java 17 or newer is needed (found: ${major:-none}). On Debian or Ubuntu: sudo apt-get install openjdk-17-jre-headless"
  say "installing a Java runtime (found: ${major:-none}, needed: 17 or newer)"
  apt_install openjdk-17-jre-headless || apt_install openjdk-21-jre-headless ||
    die "apt-get could not install a Java runtime: install Java 17 or newer by hand"
}

ensure_venv() {
  if [[ -x $venv/bin/python ]] && "$venv/bin/python" -m pip --version >/dev/null 2>&1; then return; fi
  if ! "$python" -c 'import ensurepip, venv' 2>/dev/null; then
    local version
    version=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
    can_apt || die "Python's venv module is missing. On Debian or Ubuntu: sudo apt-get install python3-venv"
    say "installing python3-venv"
    apt_install "python$version-venv" || apt_install python3-venv
  fi
  say "creating the virtual environment $venv"
  rm -rf -- "$venv"
  "$python" -m venv "$venv"
}

# As an installation does it. Where PYTHONDONTWRITEBYTECODE is set, each process that starts would compile all of its
# 300 modules again: 0.5 s of CPU for a broker. What has changed since is noticed by its time.
compile_modules() {
  "$venv/bin/python" -m compileall -q protocol broker transfer replicator connectors audit topology dr_runbooks \
    monitor isthmus || say "some modules cannot be compiled"
}

want=$(cat pyproject.toml constraints.txt | cksum)
ensure_java
ensure_venv
if [[ -f $stamp && $(<"$stamp") == "$want" ]]; then
  compile_modules
  exit 0
fi

names=demo
[[ $extras == demo ]] || names=demo,dev
[[ $extras != fuzz ]] || names=demo,dev,fuzz
say "installing packages (the first time takes a few minutes; PySpark alone is over 400 MB)"
"$venv/bin/python" -m pip install --progress-bar off --disable-pip-version-check \
  --constraint constraints.txt --editable ".[$names]" |
  { grep --line-buffered -E '^ *(Downloading|Installing collected)' || true; } | cut -c 1-100 >&2
printf '%s\n' "$want" >"$stamp"
if [[ $extras == dev ]]; then printf '%s\n' "$want" >"$venv/.installed-demo"; fi
compile_modules
say "ready"
