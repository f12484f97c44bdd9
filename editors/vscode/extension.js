// Starts fanin's language server, and shows why if that fails.

const vscode = require("vscode");
const { LanguageClient } = require("vscode-languageclient/node");

let client;

function command() {
    const [folder] = vscode.workspace.workspaceFolders ?? [];
    const words = vscode.workspace.getConfiguration("fanin").get("command");
    const here = folder?.uri.fsPath;
    const [program, ...args] = words.map((word) => word.replaceAll("${workspaceFolder}", here ?? "."));
    return { command: program, args, options: here ? { cwd: here } : {} };
}

async function start() {
    const server = command();
    client = new LanguageClient("fanin", "P4 (fanin)", server, {
        documentSelector: [
            { language: "p4", scheme: "file" },
            { language: "p4", scheme: "untitled" },
        ],
        synchronize: { fileEvents: vscode.workspace.createFileSystemWatcher("**/*.p4") },
    });
    try {
        await client.start();
    } catch (error) {
        client = undefined;
        const words = [server.command, ...server.args].join(" ");
        const advice = "Install fanin (make setup in its clone), and set fanin.command to the full path of .venv/bin/fanin there";
        vscode.window.showErrorMessage(`P4: ${words} does not start (${error.message}). ${advice}`);
    }
}

async function stop() {
    const running = client;
    client = undefined;
    await running?.stop();
}

async function activate(context) {
    context.subscriptions.push(
        vscode.commands.registerCommand("fanin.restart", async () => {
            await stop();
            await start();
        }),
    );
    await start();
}

module.exports = { activate, deactivate: stop };
