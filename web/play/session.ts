// The connection to the server. It answers requests in their order. It ends with the page, and so does all that it ran.

interface Waiting {
  resolve: (answer: never) => void;
  reject: (error: Error) => void;
}

export class Session {
  private socket: WebSocket | null = null;
  private waiting: Waiting[] = [];

  private connect(): WebSocket {
    const address = new URL("session", location.href);
    address.protocol = address.protocol.replace("http", "ws");
    address.hash = "";
    address.search = "";
    const socket = new WebSocket(address);
    socket.addEventListener("message", (event) => {
      const answer = JSON.parse(event.data as string);
      const next = this.waiting.shift();
      if ("error" in answer) next?.reject(new Error(answer.error));
      else next?.resolve(answer as never);
    });
    socket.addEventListener("close", (event) => {
      const reason = event.reason || "The server has ended. Start fanin play again, and continue: your work is in this page.";
      for (const each of this.waiting) each.reject(new Error(reason));
      this.waiting = [];
      this.socket = null;
    });
    return socket;
  }

  /** Asks the server. A connection that has ended is made again. */
  async ask<Answer>(request: object): Promise<Answer> {
    this.socket ??= this.connect();
    const socket = this.socket;
    if (socket.readyState === WebSocket.CONNECTING) {
      await new Promise((done) => {
        socket.addEventListener("open", done, { once: true });
        socket.addEventListener("close", done, { once: true });
      });
    }
    return new Promise<Answer>((resolve, reject) => {
      if (socket.readyState !== WebSocket.OPEN) {
        reject(new Error("The server does not answer. Is fanin play still running?"));
        return;
      }
      this.waiting.push({ resolve: resolve as Waiting["resolve"], reject });
      socket.send(JSON.stringify(request));
    });
  }
}
