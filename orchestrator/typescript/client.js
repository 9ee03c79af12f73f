// Requests to a sidecar, over its Unix socket or HTTP, by node's own modules. No dependencies.

import http from "node:http";
import https from "node:https";
import os from "node:os";
import path from "node:path";

const MAX_ANSWER = 4 * 1024 * 1024;
const MAX_BODY = 1024 * 1024;

/** The sidecar did not answer, or said why it cannot. `status` is 0 where there was no answer. */
export class SidecarError extends Error {
  constructor(message, status = 0) {
    super(message);
    this.name = "SidecarError";
    this.status = status;
  }
}

/** Where the user's sidecar listens unless it is told otherwise. */
export function defaultSocket(namespace = "default") {
  const runtime = process.env.XDG_RUNTIME_DIR;
  const folder = runtime
    ? path.join(runtime, "toolgate")
    : path.join(os.tmpdir(), `toolgate-${process.getuid?.() ?? 0}`);
  return path.join(folder, namespace === "default" ? "serve.sock" : `serve.${namespace}.sock`);
}

/** Posts bodies to one sidecar, over connections that are kept. */
export class SidecarClient {
  #request;
  #options;
  #agent;

  constructor({ url, socket, token, tls, maxConnections = 64 } = {}) {
    const at = new URL(url ?? "http://localhost");
    const secure = at.protocol === "https:";
    const socketPath = url === undefined ? (socket ?? process.env.TOOLGATE_SERVE_SOCKET ?? defaultSocket()) : undefined;
    this.#request = secure ? https.request : http.request;
    this.#agent = new (secure ? https.Agent : http.Agent)({ keepAlive: true, maxSockets: maxConnections, ...tls });
    this.#options = {
      method: "POST",
      agent: this.#agent,
      ...(socketPath === undefined ? { host: at.hostname.replace(/^\[|\]$/g, ""), port: at.port } : { socketPath }),
      headers: { "content-type": "application/json", ...(token ? { authorization: `Bearer ${token}` } : {}) },
    };
  }

  /** The answer to a body; rejects with SidecarError, or with the signal's reason. */
  async post(where, body, { signal, timeoutMs = 60_000 } = {}) {
    try {
      return await this.#post(where, body, signal, timeoutMs);
    } catch (error) {
      // The sidecar closes what is idle: a kept connection may end under a request that it never read.
      if (error.isStale) return await this.#post(where, body, signal, timeoutMs);
      throw error;
    }
  }

  #post(where, body, signal, timeoutMs) {
    const raw = Buffer.from(JSON.stringify(body));
    if (raw.length > MAX_BODY) {
      // The sidecar refuses it before it is read whole, which would look like one that is gone.
      return Promise.reject(new SidecarError(`the body is larger than ${MAX_BODY / 1024} KiB`, 413));
    }
    return new Promise((resolve, reject) => {
      const headers = { ...this.#options.headers, "content-length": raw.length };
      const request = this.#request({ ...this.#options, path: where, headers, signal }, (response) => {
        const parts = [];
        let size = 0;
        response.on("data", (part) => {
          size += part.length;
          if (size > MAX_ANSWER) request.destroy(new SidecarError("the sidecar's answer is too large"));
          else parts.push(part);
        });
        response.on("error", fail);
        response.on("end", () => settle(response.statusCode ?? 0, Buffer.concat(parts).toString("utf8")));
      });
      const timer = setTimeout(
        () => request.destroy(new SidecarError(`the sidecar did not answer within ${timeoutMs} ms`)),
        timeoutMs,
      );

      function fail(error) {
        clearTimeout(timer);
        if (signal?.aborted) return reject(signal.reason ?? error);
        if (error instanceof SidecarError) return reject(error);
        const fault = new SidecarError(`the sidecar cannot be reached: ${error.message}`);
        fault.isStale = request.reusedSocket && error.code === "ECONNRESET";
        reject(fault);
      }

      function settle(status, text) {
        clearTimeout(timer);
        let value;
        try {
          value = JSON.parse(text);
        } catch {
          value = undefined;
        }
        if (status === 200 && value !== null && typeof value === "object") resolve(value);
        else reject(new SidecarError(value?.detail ?? `the sidecar answered ${status}`, status));
      }

      request.on("error", fail);
      request.end(raw);
    });
  }

  /** Close the connections that are kept. */
  close() {
    this.#agent.destroy();
  }
}
