"""Credentials that leave the environment: the searches that tests of secrets share."""

import json
import traceback

import servers

SECRETS = [servers.ACCESS_KEY, servers.SECRET_KEY, servers.SESSION_TOKEN]


def leaks(*found, secrets=SECRETS) -> list[str]:
    """The secrets that some texts or bytes hold, plain or as JSON or a URL writes them."""
    raw = b"\n".join(one if isinstance(one, bytes) else str(one).encode() for one in found)
    forms = {
        form
        for secret in secrets
        for form in (secret, json.dumps(secret)[1:-1], secret.replace("/", "%2F"))
    }
    return [form for form in forms if form.encode() in raw]


def told(error: BaseException) -> str:
    """Everything that an error shows, with whatever it was raised from."""
    chain = []
    one: BaseException | None = error
    while one is not None:
        chain += [repr(one), str(one), repr(getattr(one, "args", ()))]
        one = one.__cause__ or one.__context__
    return "\n".join([*chain, *traceback.format_exception(error)])
