"""The variables that tell a process on a host of a network which worker of which job it is."""

HOST = "FANIN_HOST"  # the host's name
SERVICE = "FANIN_JOB_SERVICE"  # where the network's job service is: a path
JOB = "FANIN_JOB"  # the job's name, which tells the workers of several jobs on one host apart
SLOTS = "FANIN_SLOTS"  # how many slots it asks for
MIN_WORKERS = "FANIN_MIN_WORKERS"  # it goes on without others as long as so many are left
