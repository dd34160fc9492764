#!/bin/bash
# slurm-boot NODES: a Slurm cluster with that many nodes in this container. Each slurmd has its own loopback address.
#   partition low: jobs can be preempted, get 20 s of grace, and are requeued.   partition high: preempts low.
set -euo pipefail
nodes=$1
host=$(hostname)
mkdir -p /run/munge /var/spool/slurmctld /var/spool/slurmd /run/sshd /home/muster/.ssh
head -c 1024 /dev/urandom >/etc/munge/munge.key
chown munge:munge /run/munge /etc/munge/munge.key
chmod 400 /etc/munge/munge.key
{
    cat <<CONF
ClusterName=lab
SlurmctldHost=$host(127.0.0.1)
SlurmUser=root
AuthType=auth/munge
# A requeued job waits until credentials of its last start are no longer valid: 2 minutes without this.
AuthInfo=cred_expire=5
StateSaveLocation=/var/spool/slurmctld
SlurmdSpoolDir=/var/spool/slurmd/%n
SlurmctldPidFile=/run/slurmctld.pid
SlurmdPidFile=/run/slurmd-%n.pid
SlurmctldLogFile=/var/log/slurmctld.log
SlurmdLogFile=/var/log/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
ReturnToService=2
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SchedulerParameters=sched_interval=1,bf_interval=1
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
KillWait=20
# The nodes share one machine, which may have fewer processors than they say.
SlurmdParameters=config_overrides
NodeName=DEFAULT CPUs=4 RealMemory=2000
CONF
    for number in $(seq "$nodes"); do
        echo "NodeName=n$number NodeHostname=$host NodeAddr=127.0.1.$number Port=$((17000 + number))"
        echo "127.0.1.$number n$number" >>/etc/hosts
    done
    echo "PartitionName=low Nodes=ALL Default=YES PriorityTier=1 GraceTime=20 MaxTime=60"
    echo "PartitionName=high Nodes=ALL PriorityTier=10 PreemptMode=OFF MaxTime=60"
} >/etc/slurm/slurm.conf
runuser -u munge -- munged
slurmctld
for number in $(seq "$nodes"); do slurmd -N "n$number"; done
ssh-keygen -A >/dev/null
chown -R muster:muster /home/muster
chmod 755 /home/muster
chmod 700 /home/muster/.ssh
exec /usr/sbin/sshd -D
