"""Export captured steps as programs without monolect: C for any compiler, WebAssembly for node and browsers.

What it is for: it is one more encoder of the command buffer. A device encodes a table of launches; here the launches
become calls in a C function or in a module. What it is not: it does not run a step, and does not change one.
"""
