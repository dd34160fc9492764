# Print what the Tab key offers: commands, options, hosts and runs, one per line. It asks no host and starts no Python.
# _muster_words WORD... CURRENT, without the program's own name. For bash, zsh and sh. completion.py writes the
# functions _muster_tasks, _muster_options, _muster_excluded and _muster_values above this text. Names from files that
# others may have written (cluster.toml, runs/) are never evaluated by the shell, and only names of plain characters are
# offered.
# shellcheck shell=sh
_muster_words() (
    task='' before='' file=cluster.toml excluded=''
    while [ $# -gt 1 ]; do
        case $1 in
        --) exit ;;
        --cluster=*) file=${1#*=} ;;
        -H*) excluded="$excluded $(_muster_excluded "$task,--hosts")" ;;
        -*) excluded="$excluded $(_muster_excluded "$task,${1%%=*}")" ;;
        *)
            [ "$before" != --cluster ] || file=$1
            [ -n "$task" ] || task=$1
            ;;
        esac
        before=$1
        shift
    done
    typed=$1 stays=''
    case $typed in
    --*=*)
        before=${typed%%=*} stays=${typed%%=*}=
        typed=${typed#*=}
        ;;
    esac
    [ "$before" != -H ] || before=--hosts
    case $before in
    '' | --hosts | --run | --resume | --backend) ;;
    *) case " $(_muster_values "$task") " in *" $before "*) exit ;; esac ;;
    esac
    case $before in
    --hosts)
        case $typed in
        *,*) stays=$stays${typed%,*}, typed=${typed##*,} ;;
        esac
        case $typed in
        *@*) stays=$stays${typed%@*}@ typed=${typed##*@} ;;
        esac
        words=$(_muster_hosts "$file")
        ;;
    --run | --resume) words=$(_muster_runs) ;;
    --backend) words='auto docker processes' ;;
    *)
        case $task,$typed in
        ,*) words=$(_muster_tasks) ;;
        *,-*) words=$(_muster_options "$task") ;;
        compare,* | report,*) words=$(_muster_runs) ;;
        *,*)
            case " $(_muster_options "$task") " in
            *' --script '*) exit ;;
            *' --run '*) words="$(_muster_runs) $(_muster_hosts "$file")" ;;
            *' --hosts '*) words=$(_muster_hosts "$file") ;;
            *) exit ;;
            esac
            ;;
        esac
        ;;
    esac
    printf '%s\n' "$words" | tr ' ' '\n' | while IFS= read -r word; do
        case $word in
        '' | *[!A-Za-z0-9._@:+-]*) continue ;;
        esac
        case " $excluded " in *" $word "*) continue ;; esac
        case $word in
        "$typed"*) printf '%s\n' "$stays$word" ;;
        esac
    done
)

# The hosts of cluster.toml, then the hosts in SSH's settings that are not patterns.
_muster_hosts() {
    [ ! -f "$1" ] || head -c 1048576 -- "$1" 2>/dev/null | awk '/^[ \t]*\[/ { inside = /^[ \t]*\[\[[ \t]*hosts[ \t]*\]\]/ }
        /^[ \t]*hosts[ \t]*=[ \t]*\[[^]]*\]/ { gsub(/^[^[]*\[|\].*$|["\047,]/, " "); print }
        inside && /^[ \t]*name[ \t]*=/ { gsub(/^[^=]*=[ \t]*["\047]|["\047].*$/, ""); print }'
    _muster_settings "${MUSTER_SSH_CONFIG:-$HOME/.ssh/config}" | while IFS= read -r file; do
        awk 'tolower($1) == "host" { for (i = 2; i <= NF; i++) if ($i !~ /[*?!"]/) print $i }' "$file"
    done
}

# The file with SSH's settings, and the files that it includes.
_muster_settings() {
    # In zsh, this makes the shell expand the pattern in a variable.
    [ -z "${ZSH_VERSION:-}" ] || emulate -L sh
    [ -r "$1" ] || return 0
    printf '%s\n' "$1"
    awk 'tolower($1) == "include" { for (i = 2; i <= NF; i++) print $i }' "$1" | while IFS= read -r pattern; do
        case $pattern in
        '~'/*) pattern=$HOME/${pattern#??} ;;
        /*) ;;
        *) pattern=$HOME/.ssh/$pattern ;;
        esac
        for file in $pattern; do
            [ ! -r "$file" ] || printf '%s\n' "$file"
        done
    done
}

# The runs of this folder, or of the project that the folder is in; the newest run is last.
_muster_runs() {
    folder=$PWD
    while [ ! -d "$folder/runs" ] && [ "$folder" != / ] && [ -n "$folder" ]; do
        folder=${folder%/*}
    done
    for run in "$folder"/runs/*/; do
        run=${run%/}
        printf '%s\n' "${run##*/}"
    done
    echo latest
}
