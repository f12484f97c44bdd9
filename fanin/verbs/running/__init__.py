"""Verbs that start a network, and verbs that inspect or change a running one."""
