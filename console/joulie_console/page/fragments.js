// @ts-check
// Free GPUs that are of no use to pods, and a plan of moves that makes them usable.

import { ask } from "./api.js";
import { count } from "./format.js";
import { Name, NodeLink } from "./parts.js";
import { Component, html } from "./view.js";

const MOST_MOVES = 20;

/**
 * @param {{ free: Record<string, { free: number, unusable: number }> | null, isPast: boolean }} props
 *   `free`: by model
 */
export function FreeGpus({ free, isPast }) {
  const models = Object.entries(free || {}).filter(([, each]) => each.free > 0);
  if (!models.length) return null;
  return html`
    <div id="free-gpus">
      <ul>${models.map(([model, each]) =>
        html`<li key=${model}><${Name} text=${model} />: ${gpus(each.free)} free,${" "}
          <span class=${each.unusable > 0 ? "warned" : ""}>${
          gpus(each.unusable)
        } of no use</span> to pods like those that asked</li>`
      )}</ul>
      ${!isPast && html`<${Moves} />`}
    </div>
  `;
}

/** A plan takes a second in a large cluster, and is made when somebody asks for it. */
class Moves extends Component {
  state = { plan: null, why: "", isLoading: false };

  #load = async () => {
    this.setState({ why: "", isLoading: true });
    try {
      this.setState({ plan: await ask("defragment", { moves: MOST_MOVES }) });
    } catch (error) {
      this.setState({ why: /** @type {Error} */ (error).message });
    }
    this.setState({ isLoading: false });
  };

  render() {
    const { plan, why, isLoading } = this.state;
    return html`
      <button id="plan-moves" type="button" disabled=${isLoading} onClick=${this.#load}>
        ${plan ? "Plan again" : "Which pods to move"}</button>
      ${why && html`<p class="warned">${why}</p>`}
      ${plan && html`<${Plan} plan=${plan} />`}
    `;
  }
}

/** @param {{ plan: any }} props */
function Plan({ plan }) {
  const { before, after, cost, moves, stays, notes } = plan;
  return html`
    <div id="moves">
      <p><strong>${`${count(moves.length)} of ${
        count(plan.pods)
      } pods would move`}</strong>${moves.length
        ? ""
        : ": no move gains a tenth of a GPU for each pod that it moves"}</p>
      ${moves.length > 0 && html`
        <p>${`Value: ${gpus(before.unusable - after.unusable)} of use that were of none; ${
          signed(after.cards - before.cards)
        } whole cards, ${signed(after.groups - before.groups)} linked groups, ${
          signed(after.nodes - before.nodes)
        } nodes.`}</p>
        <p>${`Cost: ${count(cost.pods)} pods begin again, with ${gpus(cost.gpus)} and ${
          cost.cores.toFixed(1)
        } cores.`}</p>
      `}
      <ol>${moves.map((/** @type {any} */ move) =>
        html`<li key=${move.uid} title=${move.because}><${Name} text=${move.pod} /> from${" "}
          <${NodeLink} name=${move.node} />, would fit on <${NodeLink} name=${move.would_fit} />
          ${` (+${gpus(move.gains)})`}</li>`
      )}</ol>
      <ul class="muted">
        ${stays.map((/** @type {any} */ each) =>
          html`<li key=${each.because}>${`${count(each.pods)} stay: ${each.because}`}</li>`
        )}
        ${notes.map((/** @type {string} */ note) => html`<li key=${note}>${`${note}.`}</li>`)}
      </ul>
    </div>
  `;
}

/** @param {number} amount */
const gpus = (amount) => `${amount.toFixed(2)} GPUs`;

/** @param {number} amount */
const signed = (amount) => `${amount < 0 ? "" : "+"}${amount}`;
