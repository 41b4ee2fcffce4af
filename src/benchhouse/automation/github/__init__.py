"""Commands from GitHub: signed webhooks and polled comments become orders, which are executed once and answered.

Input is untrusted text; output is calls of the API that a person's role allows, and comments.
"""
