"""The live page: one file without a framework, which asks `/state` each second, and the policy that keeps it so."""

from __future__ import annotations

import re
from base64 import b64encode
from hashlib import sha256
from importlib import resources
from typing import Final

__all__ = ["HTML", "POLICY"]

HTML: Final = (resources.files(__package__ or "") / "page.html").read_bytes()


def _hash_of(element: bytes) -> str:
    found = re.search(b"<%s>(.*?)</%s>" % (element, element), HTML, re.DOTALL)
    assert found is not None
    return f"'sha256-{b64encode(sha256(found[1]).digest()).decode()}'"


POLICY: Final = "; ".join(
    (
        "default-src 'none'",
        f"script-src {_hash_of(b'script')}",
        f"style-src {_hash_of(b'style')}",
        "connect-src 'self'",
        "img-src data:",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    )
)
"""Nothing comes from elsewhere, and nothing runs but what stands in the file."""
