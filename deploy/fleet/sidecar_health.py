"""Whether a sidecar answers: python sidecar_health.py SOCKET PATH, where PATH is /healthz or /readyz."""

import http.client
import socket
import sys

asked = http.client.HTTPConnection("localhost")
asked.sock = socket.socket(socket.AF_UNIX)
asked.sock.settimeout(2)
asked.sock.connect(sys.argv[1])
asked.request("GET", sys.argv[2])
sys.exit(asked.getresponse().status != 200)
