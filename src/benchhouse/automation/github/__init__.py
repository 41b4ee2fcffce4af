"""What GitHub asks for: signed webhooks and polled comments become orders, which are carried out once and answered.

Texts of strangers come in; calls of the API that a person's role allows, and comments, go out.
"""
