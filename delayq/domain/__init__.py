"""The things that delayq deals with: messages, routes, policies, nodes, keys of the API."""
