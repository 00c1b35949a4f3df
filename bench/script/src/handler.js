const order = ctx.event.data;
const totals = {};
let sum = 0;
for (const item of order.items) {
    const price = item.quantity * item.price;
    sum += price;
    totals[item.category] = (totals[item.category] ?? 0) + price;
}
const tags = order.tags.filter((tag) => tag.startsWith('region:')).map((tag) => tag.slice(7).toUpperCase());
const rate = order.customer.country === 'DE' ? 0.19 : 0.2;
const tax = Math.round(sum * rate * 100) / 100;
const name = `${order.customer.first} ${order.customer.last}`.trim();
const match = /^(\w+)@(.+)$/.exec(order.customer.email);
if (!match) {
    throw new Error(`no address: ${order.customer.email}`);
}
const large = Object.entries(totals).filter(([, value]) => value > 50).sort((a, b) => b[1] - a[1]);
const result = { type: ctx.event.type, order: order.id, name, domain: match[2], tags, sum, tax, large };
result.level = await Promise.resolve(sum > 100 ? 'high' : 'low');
return result;
