#!/bin/sh
# Runs within the root that the packages are tried in, as its superuser: installs them, uses what they brought as a
# stranger would, and takes them away. The packages, example.c and the
# commands of docs/install.md lie in the folder that is given.
set -eu
cd "$1"
step() { echo "debian: $*"; }

step "installed by apt, as docs/install.md says"
sh install.sh >apt.log 2>&1 || { cat apt.log >&2; exit 1; }
ledgerline --version

step "a program under run"
seq 1 20000 >numbers
ledgerline run --json account.json --account account.txt -- sort -rn numbers >sorted
[ "$(head -n 1 sorted)" = 20000 ]
grep -q '"exit_code": *0' account.json
grep -q '"not_accounted": *\[\]' account.json
grep -q 'sort\.' account.txt
status=0
ledgerline run --max 1M --account account.txt -- sort -S 64M -rn numbers >/dev/null 2>&1 || status=$?
grep -q refused account.txt

step "the same as a user who may write nowhere"
setpriv --reuid 65534 --regid 65534 --clear-groups ledgerline run --json - --account /dev/null -- true >nobody.json
grep -q '"not_accounted": *\[\]' nobody.json

step "the laboratory"
ledgerline layout --help | grep -q '^Usage: ledgerline-lab layout'

step "programs in C, with the shared library and with the static one"
cc example.c $(pkg-config --cflags --libs ledgerline) -o shared
ldd ./shared | grep -q 'libledgerline.so.1 => /'
./shared | grep ' is full: '
cc example.c -l:libledgerline.a -lgcc_s -lm -ldl -o static
if ldd ./static | grep ledgerline; then exit 1; fi
./static | grep ' is full: '

step "the manual"
for page in ledgerline ledgerline-run ledgerline-lab-layout-show; do
    man -E UTF-8 "$page" >page
    grep -q '^SYNOPSIS' page
done

step "completions"
cat >completes <<'END'
. /usr/share/bash-completion/bash_completion
_completion_loader ledgerline || [ $? = 124 ]
COMP_WORDS=(ledgerline run --max-h) COMP_CWORD=2
"$(complete -p ledgerline | sed 's/.*-F \([^ ]*\).*/\1/')" ledgerline --max-h run
[ "${COMPREPLY[*]}" = --max-heap ]
END
if [ -e /usr/share/bash-completion/bash_completion ]; then
    bash --norc completes
else
    echo "debian: left out: bash-completion is not in this root"
fi

step "taken away"
sh purge.sh >apt.log 2>&1 || { cat apt.log >&2; exit 1; }
left=$(find /usr /etc /var/lib/dpkg/info -xdev -name '*ledgerline*')
[ -z "$left" ] || { echo "left behind: $left" >&2; exit 1; }
