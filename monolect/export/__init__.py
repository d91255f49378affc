"""Captured steps as programs without monolect: C that any compiler takes, WebAssembly for node and browsers.

What it is for: one more encoder of the command buffer. A device writes a table of launches; here the launches are
calls in a function of C, or in a module. What it does not do: run a step, or change what one is.
"""
