#!/bin/sh
# not_earlier: filters job ids: drops those in `.earlier`, the jobs of this folder that ended before the current one.
not_earlier() { if [ -e .earlier ]; then grep -vxF -f .earlier; else cat; fi; }
# look_job ID: prints what Slurm reports about a job: `job LINE` from scontrol, and `hosts NAME...`; once the controller has
# forgotten the job, `record STATE|CODE` from accounting, if there is any; otherwise `job gone`. `job away`: the controller does
# not answer; a busy controller delays scontrol for minutes, and the caller has files to report meanwhile. Before its answer,
# scontrol may complain on standard error about lines of slurm.conf that it does not know.
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
