"""Models of torch: `explain` says which operations of a module `torch.compile(module, backend="morello")` runs."""

from morello.models.dynamo import explain as explain
