import "./style/text.css";
import { render } from "preact";
import { App } from "./views/App";

render(<App />, document.getElementById("app")!);
