// A hundred thousand proxies around each other, and none of our frames between.
let chain = {};
for (let i = 0; i < 1e5; i++) chain = new Proxy(chain, {});
return chain.deeper;
