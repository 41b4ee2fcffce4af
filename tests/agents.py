"""Agents that ask a server by the official client of the Model Context Protocol."""

import contextlib
import sys

import anyio
import httpx2
from mcp import Client, StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client


def over_http(base, talk, mode="auto", **headers):
    """What `talk(client)` returns, to whom these headers are sent with each request."""

    async def connect():
        async with httpx2.AsyncClient(headers=headers, timeout=120) as http:
            transport = streamable_http_client(f"{base}/mcp", http_client=http)
            async with Client(transport, mode=mode) as client:
                return await talk(client)

    return anyio.run(connect)


def over_stdio(lab, talk, *options, mode="auto"):
    """The same of `bench mcp` on the workspace of a laboratory; and what it wrote to stderr."""

    async def connect():
        parameters = StdioServerParameters(
            command=sys.executable,
            args=["-m", "benchhouse", "-C", str(lab.workspace), "mcp", *options],
            env=lab.environment(),
        )
        with contextlib.ExitStack() as opened:
            log = opened.enter_context((lab.root / "mcp.log").open("w+"))
            async with Client(stdio_client(parameters, errlog=log), mode=mode) as client:
                answer = await talk(client)
            log.seek(0)
            return answer, log.read()

    return anyio.run(connect)


async def ask(client, tool, **arguments):
    """The structured answer of a tool, which must not refuse; the client holds it against its schema."""
    result = await client.call_tool(tool, arguments)
    assert not result.is_error, result.content[0].text
    return result.structured_content


def call(base, tool, headers, **arguments):
    """One call of one tool."""

    async def talk(client):
        return await client.call_tool(tool, arguments)

    return over_http(base, talk, **headers)
