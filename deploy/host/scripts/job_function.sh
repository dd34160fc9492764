#!/bin/sh
# not_earlier: of jobs' ids, those that are not in `.earlier`: the jobs of this folder that ended before the present one.
not_earlier() { if [ -e .earlier ]; then grep -vxF -f .earlier; else cat; fi; }
# look_job ID: what Slurm says of a job. `job LINE` of scontrol, and `hosts NAME...` it has; once the controller has forgotten
# it, `record STATE|CODE` of the accounting, where there is one; else `job gone`. `job away`: the controller does not
# answer; a busy one holds up scontrol for minutes, and the caller has files to report meanwhile. Before its answer, scontrol
# may say on standard error what it does not know in slurm.conf.
look_job() {
    if line=$(LC_ALL=C timeout 15 scontrol show job --oneliner "$1" 2>&1); then
        echo "job $(printf '%s\n' "$line" | grep -m 1 '^JobId=' | cut -b 1-8000)"
        case $line in *' NodeList='*) list=${line##*' NodeList='}; list=${list%%' '*} ;; *) list= ;; esac
        case $list in
        '' | '(null)') ;;
        *) echo "hosts $(timeout 15 scontrol show hostnames "$list" 2>/dev/null | head -n 10000 | tr '\n' ' ')" ;;
        esac
        return
    fi
    case $line in *[Ii]'nvalid job id'*) ;; *) echo "job away"; return ;; esac
    line=$(LC_ALL=C timeout 30 sacct --noheader --parsable2 --allocations --jobs "$1" --format State,ExitCode 2>/dev/null | tail -n 1)
    case $line in *'|'*) echo "record $line" ;; *) echo "job gone" ;; esac
}
