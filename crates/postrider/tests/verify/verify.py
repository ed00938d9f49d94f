"""Verifies requests with PyPI `standardwebhooks`.

Standard input: {"secret": "...", "requests": [{"headers": {...}, "body_base64": "..."}]}. Prints how many verified; fails with
the first that does not.
"""

import base64
import json
import sys

from standardwebhooks.webhooks import Webhook, WebhookVerificationError

given = json.load(sys.stdin)
webhook = Webhook(given["secret"])
for request in given["requests"]:
    body = base64.b64decode(request["body_base64"])
    webhook.verify(body, request["headers"])
    try:
        webhook.verify(body + b" ", request["headers"])
    except WebhookVerificationError:
        continue
    raise SystemExit("a changed body was accepted")
print(len(given["requests"]))
