"""What is counted of the requests, for Prometheus."""

from prometheus_client import Counter, Gauge, Histogram

REQUESTS = Counter("roost_api_requests", "Requests answered.", ["api", "method", "route", "status"])
SECONDS = Histogram(
    "roost_api_request_seconds",
    "Time from the first byte of a request to the last of its answer, feeds of events left out.",
    ["api", "method", "route"],
    buckets=(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10),
)
AT_WORK = Gauge("roost_api_requests_at_work", "Requests that this process is working on.")
SHED = Counter("roost_api_requests_shed", "Requests refused because too many were being worked on.")
ENDLESS = "text/event-stream"
"""Answers of this type last as long as the client reads them, which says nothing about speed."""
