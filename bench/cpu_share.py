"""The share of the machine's CPU time that other processes and the hypervisor used during a benchmark.
SPDX-License-Identifier: Apache-2.0
"""
import os

MOST_FOREIGN = 0.05  # above this share of the CPU, a run does not count


def ticks():
    """Returns three times in ticks: the busy and stolen time of the machine, all time of the machine, and the CPU time
    of this process and of its ended children."""
    with open("/proc/stat", encoding="ascii") as stat:
        user, nice, system, idle, iowait, irq, softirq, steal = map(int, stat.readline().split()[1:9])
    used = user + nice + system + irq + softirq + steal
    times = os.times()
    own = (times.user + times.system + times.children_user + times.children_system) * os.sysconf("SC_CLK_TCK")
    return used, used + idle + iowait, own


def foreign_share(begin, end):
    """The share that other processes used, or other virtual machines stole, between two results of ticks()."""
    return max(0.0, (end[0] - begin[0]) - (end[2] - begin[2])) / max(1, end[1] - begin[1])
