"""The prompt of simple_switch_CLI and its commands, by what they are about."""
