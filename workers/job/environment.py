"""The environment variables that tell a process on a host of a network which worker of which job it is."""

HOST = "FANIN_HOST"  # the host's name
SERVICE = "FANIN_JOB_SERVICE"  # path of the job service's socket
JOB = "FANIN_JOB"  # the job's name, which distinguishes the workers of several jobs on one host
SLOTS = "FANIN_SLOTS"  # how many slots the job asks for
STOPPED_BY = "FANIN_STOPPED_BY"  # file for the ranks whose failure has stopped this worker
MIN_WORKERS = "FANIN_MIN_WORKERS"  # the job continues without failed workers as long as this many are left
