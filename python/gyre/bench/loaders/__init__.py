"""The programs that `gyre bench loader` measures, one file each, and what they have in common.

A program loads images (or volumes) as fast as it can for some seconds and prints one line of JSON: {"per_second": …}
and optional further figures. It can be written in any language and run in any environment.
"""
