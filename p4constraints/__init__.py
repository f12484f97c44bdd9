"""The language of `@entry_restriction` and `@action_restriction`, which the compiler checks and the switch enforces."""
