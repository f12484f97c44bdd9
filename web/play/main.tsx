import { EditorView } from "@codemirror/view";
import { render } from "preact";
import { useEffect, useRef } from "preact/hooks";
import { ThemeButton } from "../shared/theme";
import { p4Editor } from "./editor";

function Playground() {
  const place = useRef<HTMLDivElement>(null);
  useEffect(() => {
    const view = new EditorView({ parent: place.current!, extensions: p4Editor() });
    return () => view.destroy();
  }, []);
  return (
    <main>
      <header>
        <h1>fanin play</h1>
        <ThemeButton />
      </header>
      <div ref={place} />
    </main>
  );
}

render(<Playground />, document.getElementById("page")!);
