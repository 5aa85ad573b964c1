"""Answers to Specs at any address that fsspec reads and writes, signed by whoever solved them."""

from morello.lazy import lazy

TYPE_CHECKING = False
if TYPE_CHECKING:
    from morello_sharing.exchange import Pulled, Pushed, pull, push
    from morello_sharing.keys import private_key, public_key

__all__ = ["Pulled", "Pushed", "private_key", "public_key", "pull", "push"]
__getattr__, __dir__ = lazy(
    __name__,
    {
        "morello_sharing.exchange": ["Pulled", "Pushed", "pull", "push"],
        "morello_sharing.keys": ["private_key", "public_key"],
    },
)
