"""P4 courses run with the commands of fanin/bmv2_commands, as their READMEs say."""
