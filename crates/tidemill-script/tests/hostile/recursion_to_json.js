class Deeper {
    toJSON() { return { deeper: new Deeper() }; }
}
return new Deeper();
