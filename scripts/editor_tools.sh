#!/usr/bin/env bash
# Puts the language servers that `tests/editors` asks into target/tools/editors: yaml-language-server from npm, tombi from
# PyPI, in the versions that tests/editors/tools names. Prints what it does; nothing where all is in place. What cannot be
# had is said, and its tests skip themselves; where CI is set, it is an error.
set -euo pipefail
cd "$(dirname "$0")/.."

from=tests/editors/tools
to=target/tools/editors
missing=0

miss() {
  printf 'editor tools: %s\n' "$@" >&2
  missing=1
}

# Whether a part was made of these very files; `mark` says that it is.
is_made() { cmp -s <(cat "${@:2}") "$to/$1.made"; }
mark() { cat "${@:2}" >"$to/$1.made"; }

mkdir -p "$to"
if ! is_made npm $from/package.json $from/package-lock.json; then
  if ! command -v node >/dev/null || ! command -v npm >/dev/null; then
    miss 'there is no `node` or no `npm`: the schema is not tried in yaml-language-server; install Node.js 18 or later'
  else
    echo 'editor tools: installing yaml-language-server'
    cp $from/package.json $from/package-lock.json $from/.npmrc "$to"
    if (cd "$to" && npm ci --silent --no-progress); then
      mark npm $from/package.json $from/package-lock.json
    else
      miss 'npm could not install yaml-language-server: the schema is not tried in it'
    fi
  fi
fi
if ! is_made pip $from/requirements.txt; then
  if ! python3 -m pip --version >/dev/null 2>&1; then
    miss 'there is no `python3` with pip: the schema is not tried in tombi'
  else
    echo 'editor tools: installing tombi'
    if python3 -m pip install --quiet --disable-pip-version-check --root-user-action=ignore --no-deps --only-binary=:all: --require-hashes \
      --upgrade --target "$to/python" --requirement $from/requirements.txt; then
      mark pip $from/requirements.txt
    else
      miss 'pip could not install tombi: the schema is not tried in it'
    fi
  fi
fi
[ $missing = 0 ] || [ -z "${CI-}" ] || exit 1
