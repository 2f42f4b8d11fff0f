// Claims a unit with a client generated from the server's OpenAPI file.
import createClient from "openapi-fetch";
import type { components, paths } from "./api.mjs";

declare const process: { argv: string[] };
const [baseUrl, admin, buyer] = process.argv.slice(2) as [string, string, string];
const as = (token: string) =>
  createClient<paths>({ baseUrl, headers: { authorization: `Bearer ${token}` } });

/** The answer, or an end with what the server said instead. */
function good<T>(answer: { data?: T; error?: unknown }): T {
  if (answer.data === undefined) throw new Error(JSON.stringify(answer.error));
  return answer.data;
}

const sale = good(
  await as(admin).POST("/api/v1/sales", {
    body: { title: "Phone", sku: "phone-15", stock: 1, price_cents: 9900 },
  }),
);
const path = { sale_id: sale.id };
const claim: components["schemas"]["ClaimView"] = good(
  await as(buyer).POST("/api/v1/sales/{sale_id}/claims", { params: { path }, body: { quantity: 1 } }),
);
console.log(claim.claim_id);
const again = await as(buyer).POST("/api/v1/sales/{sale_id}/claims", { params: { path } });
console.log(again.error?.code);
