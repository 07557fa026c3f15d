"""Filters of system calls, built by `scripts/filters.py`; a test compares them."""

from __future__ import annotations


def unpack(text: str) -> bytes:
    """Return a filter as the kernel takes it."""
    import zlib
    from binascii import a2b_base64

    return zlib.decompress(a2b_base64(text))


DOCKERS = {
    "x86_64": r"""
eNqVVMsuQ1EUXcelFRO9otFIBxVJQ5EgmpSBNPgBSafGfAUx8Qg/gBiZMEU8GgNhKDFRfoChgRESgzqPXW5P9pbrtjend/Ws
x16naQ5Aq77TUJgGrhP6cx5tyMFdRegvgHIDL2IVPcrgC9iz349jya79KNg11C+zKqT0mrAq9RWjl9V3hXTTztb6ZAiv60vj
qqvieIpyxOVlI7yGr8kx6OXoFvRSnl4ezTni8gbA5ejAJPVS+mceoGU57c7hh9fQN3qLLJ7DpvULsE6+a+y+XmyQX7fzD6L+
vu9f+9pj7tPzxNSLt8/07s/1O1+AbZp/S+hvJ4Kb5132/EK8WZ0katTrAenug//dVVk8wDPxHgXeSwQ3z69s7iS+KMcH6b0L
832yeAClHM+8OV5KNfcSKi5vHw6tTicmlOtnWLlcBdLPKH7OIcX3M0q8EYE3xuJJlMm3RPyiwJ8SfGeJNyPw5lTzucx7vbn/
xxBV6uGU8hyT7pHQ8wmrE+CceGcC78I7n0uhlzvKcUN6V8J8t0IvD8S7F3g1r5cnZp5vdqqWYw==
""",
    "aarch64": r"""
eNqNVE0rRGEUfo4Z8xUZw2SMwZS6o6xtfPwB69kQC1bKhmLLypbfIBsfO2SQhSgWyoaUomRrg+zH+3Gm7rzOW/fW7cx7Os/z
Puc5504ZQFy9eRBqwFVC/Q7QijLsM4pNfJk4hSUTBzFhYh4DJsbQZSIhp2LCoOobOpLi0fn+UF7zltRbZf68vd7cV+B8XT0q
T7mqxRHriYorhXCNe7XOEdZZ8egcC+X1eRwSTxKz3Pc0802KdYQZMV/CvMEVMcf6u20/sUY/WXsmOL756lIR64CWiHzR6rTf
ro/h/hdC/evzouh7Jw6MH0mssa8r7OuyZ06rYj6GbcZteXA7znx3xfn04JV13DLfoVjXgbvQ/KS9zDp7GaB5n6Pihj379SL2
mcG70Z3CW0R9ai/W3X2T7vtw5vkp3j+ECsHMtY3sXONk/fxhP7898/l18gHPNUkWlyAZl6bmuWZI/m4LrCPLfO0k+5oj+f+j
yLheD66Pmv0JSN73c/blmPXsM+8e1wcO75FHzynjTjy4mqPnTNSTxj3ruGS+C4/P147PNx5dj8zz4PHpydH1TP/n/gesZJqO
""",
}
"""Docker's default, for its fourteen capabilities, by machine."""

POWERLESS = {
    "x86_64": r"""
eNqVVLtKA1EUnONqIlaJGEyxRSAQNCooJBAtJKg/IKS31K/QQvCB/oCKhdpoa8RHsBAtBRujP6ClhZUKFvE+TmRzOVfWXZaz
e/bOnJm5y+YAdKsrA8I0cJNQ9wX0IAd7lKFeANV2v4xVpEn3F7Bv3pewZmoeRVPT6tSVkFI1YVhaK5ovVFeNeTN2rJmT5X5L
HapP/TWLI9YRFxdGcO25Wsewo2PAw5dy+Aro1BEXNwRJRx8mOZfKP/UAXcsZuw+/uDa/5luM9PXzkjg/hy0zP8QG61gX/Kk5
QXS+O/evdb0x1yk/MfnirdO5S7lsijkE2GH/25C/l91IXz/vibmn8WZ4kmiYGuCQeQ88+3Qk9gM8Ma7pwb04+/sq6k7ii3V8
MN+7x9+nJxeQxX17cESduaRI0pvHMdn/QIlsPiNkdWWZf5Bkn0WS8xlj3KgHN06d+UyQnE+VdVSYr0yyzymS85ll3IwHN+fk
M+/oLfB30+BczljPKfOeePzVRZ4AF4w79+AunVyuPLncs45b5rv2+Lvz5PLIuAcPrunk8iz4+QEgFZms
""",
    "aarch64": r"""
eNqVUr8vQ1EU/o5Wqw3RVl8URRevEiMWP/4DYxfCwCSxkLAy2vgbxFJsiCIGIWGQWIhEQiJWC2Kv++M03ru5N3le8nLePe9+
3/nOd04JQFy8Hgg14DIhvn00owT9jGITHypOYVHFfoyp6KFPxRg6VCTkREwoVH1DRhI8Mt8byEveongrzO/p8qpegfN18Yg8
5SoaR6wnKq4YwDXqSp1DrLPs0DkcyMvzCGw8Kcxw3xPMN269R5gM5OV52lq3iDnmmTV8yus+Y40+M/pMiHivJTJfU0S+aPfk
HGz+zhv+Llh9y2JX+ZHEKvu8zP4sOXxegX3eW4xbc+C2jfnsWOfTiWfWccB8+479uQn1145b9iXv2NuMsbc+wvseFTdo6e9P
RxqvrPvln/xiL9bNfQv2+2bM893q8wDKJOtnkSY91x/284t1fTrm8+2Ya4I0Lk76v2/gkhSea4ps+lMokNbRxnytZO8zQ+E+
c2TX1c08XWTvp8fQ5VvrZXHGPh2xvj3mrTr6PXToOWHcsQNXM/ScOny6Yx0XzHfu8OnK8OnaoeuBee4dPj0aup6MerKPX9wr
nNs=
""",
}
"""The same for a program without any, by machine."""
