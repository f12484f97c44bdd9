"""Routes of the controller's own: up to a spine, and down again."""

from fanin.controller.plan import plan_forwarding

__all__ = ["plan_forwarding"]
