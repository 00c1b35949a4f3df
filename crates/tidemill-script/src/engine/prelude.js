// What is in place before a script runs. It is evaluated once, before the engine's memory is copied.
//
// The rule of this file: whatever runs after the script started uses only what was captured here, because by then every
// global and every prototype may have been replaced. So no methods are called on values, nothing is spread or iterated,
// no element is assigned to an array, and no text is matched.
(function (emit, enter, limits) {
    'use strict';

    const uncurry = Function.prototype.bind.bind(Function.prototype.call);
    const slice = uncurry(String.prototype.slice);
    const wellFormed = uncurry(String.prototype.toWellFormed);
    const symbolText = uncurry(Symbol.prototype.toString);
    const { parse, stringify } = JSON;
    const { defineProperty, freeze, keys } = Object;
    const { construct } = Reflect;
    const BaseError = Error;
    const { callChars, lineChars, messageChars, nameChars, stackChars, subjectChars } = limits;

    // No string becomes code, nothing is shared, no clock but the one below. The engine has no compiler here either.
    for (const name of ['eval', 'SharedArrayBuffer', 'Atomics', 'performance', 'WeakRef', 'FinalizationRegistry']) {
        delete globalThis[name];
    }
    // They would hand out call sites, and let a script decide what an error's stack is.
    for (const name of ['prepareStackTrace', 'captureStackTrace', 'stackTraceLimit']) {
        delete BaseError[name];
    }

    // The clock stands still at the moment when the execution started.
    let now = 0;
    const RealDate = Date;
    const dateText = uncurry(RealDate.prototype.toString);
    const StillDate = function Date(...parts) {
        if (new.target === undefined) {
            return dateText(construct(RealDate, [now]));
        }
        return construct(RealDate, parts.length === 0 ? [now] : parts, new.target);
    };
    defineProperty(StillDate, 'prototype', { value: RealDate.prototype, writable: false });
    defineProperty(StillDate, 'length', { value: 7, configurable: true });
    for (const [name, value] of [['now', () => now], ['parse', RealDate.parse], ['UTC', RealDate.UTC]]) {
        defineProperty(StillDate, name, { value, writable: true, configurable: true });
    }
    defineProperty(RealDate.prototype, 'constructor', { value: StillDate, writable: true, configurable: true });
    defineProperty(globalThis, 'Date', { value: StillDate, writable: true, configurable: true });
    // Reads the time zone now: later there is no file to read it from.
    new RealDate(0).getTimezoneOffset();

    // sfc32: small, fast, and the same for the same execution.
    let a = 0, b = 0, c = 0, d = 1;
    const next = () => {
        const t = (a + b + d) | 0;
        d = (d + 1) | 0;
        a = b ^ (b >>> 9);
        b = (c + (c << 3)) | 0;
        c = ((c << 21) | (c >>> 11)) + t | 0;
        return t >>> 0;
    };
    defineProperty(Math, 'random', {
        value: function random() {
            return ((next() >>> 5) * 67108864 + (next() >>> 6)) / 9007199254740992;
        },
        writable: true,
        configurable: true,
    });

    const errorClass = (name) => {
        const made = class extends BaseError {};
        defineProperty(made, 'name', { value: name, configurable: true });
        defineProperty(made.prototype, 'name', { value: name, writable: true, configurable: true });
        defineProperty(globalThis, name, { value: made, writable: true, configurable: true });
        return made;
    };
    const PermissionError = errorClass('PermissionError');
    const ValidationError = errorClass('ValidationError');

    const cut = (text, chars) => wellFormed(text.length > chars ? slice(text, 0, chars) : text);

    // What a value looks like in a line of the log. It coerces nothing, so `toString` is never called.
    const show = (value) => {
        switch (typeof value) {
            case 'string':
                return value;
            case 'symbol':
                return symbolText(value);
            case 'function':
                return '[function]';
            case 'object':
                break;
            default:
                return `${value}`;
        }
        if (value === null) {
            return 'null';
        }
        try {
            if (value instanceof BaseError) {
                const told = tell(value);
                return told.stack === '' ? told.text : `${told.text}\n${told.stack}`;
            }
            const json = stringify(value);
            return typeof json === 'string' ? json : '[object]';
        } catch {
            return '[unprintable]';
        }
    };

    const member = (value, name, chars) => {
        try {
            const found = value[name];
            return typeof found === 'string' ? cut(found, chars) : '';
        } catch {
            return '';
        }
    };

    // An error as texts, whatever it is.
    const tell = (thrown) => {
        if ((typeof thrown !== 'object' || thrown === null) && typeof thrown !== 'function') {
            return { __proto__: null, name: '', text: cut(show(thrown), messageChars), stack: '' };
        }
        const name = member(thrown, 'name', nameChars);
        const message = member(thrown, 'message', messageChars);
        const stack = member(thrown, 'stack', stackChars);
        let text = message;
        if (name !== '') {
            text = message === '' ? name : `${name}: ${message}`;
        } else if (message === '' && stack === '') {
            // Thrown, and no error at all.
            try {
                const json = stringify(thrown);
                text = typeof json === 'string' ? cut(json, messageChars) : `[${typeof thrown}]`;
            } catch {
                text = `[${typeof thrown}]`;
            }
        }
        return { __proto__: null, name, text, stack };
    };

    // Set once the log is full; further lines are not even put together.
    let full = false;
    const printer = (level, name) => {
        const print = {
            [name](...values) {
                if (full) {
                    return;
                }
                let line = '';
                for (let i = 0; i < values.length && line.length <= lineChars; i++) {
                    // One more than fits, so that it shows below that something was cut.
                    const text = cut(show(values[i]), lineChars + 1);
                    line = i === 0 ? text : `${line} ${text}`;
                }
                full = !emit(level, cut(line, lineChars), line.length > lineChars);
            },
        };
        return print[name];
    };
    const console = {};
    for (const [level, name] of [[0, 'debug'], [1, 'log'], [1, 'info'], [2, 'warn'], [3, 'error']]) {
        defineProperty(console, name, { value: printer(level, name), enumerable: true, writable: true, configurable: true });
    }
    defineProperty(globalThis, 'console', { value: console, writable: true, configurable: true });
    defineProperty(globalThis, 'log', { value: printer(1, 'log'), writable: true, configurable: true });

    // It has a name of its own, so that it is told by it whatever became of its prototype.
    const refusal = (permission, reason) => {
        const error = permission ? new PermissionError(reason) : new ValidationError(reason);
        const value = permission ? 'PermissionError' : 'ValidationError';
        return defineProperty(error, 'name', { __proto__: null, value, writable: true, configurable: true });
    };

    let granted = 0;
    // Hands a call to the host. It answers with the id, or with the reason why not.
    const hand = (kind, name, subject, value) => {
        if ((granted & (1 << kind)) === 0) {
            throw refusal(true, `ctx.${name}: this script has no grant \`${name}\``);
        }
        const json = stringify(value);
        if (typeof json === 'string' && json.length > callChars) {
            throw refusal(false, `ctx.${name}: ${json.length} characters of JSON; the limit is ${callChars} bytes`);
        }
        if (typeof subject === 'string') {
            subject = cut(subject, subjectChars);
        }
        const answer = enter(kind, subject, json);
        if (answer[0] !== '!') {
            return answer;
        }
        throw refusal(false, `ctx.${name}: ${slice(answer, 1)}`);
    };
    const functions = {
        publish(type, data) {
            return hand(0, 'publish', typeof type === 'string' ? type : undefined, data);
        },
        submitJob(spec) {
            return hand(1, 'submitJob', undefined, spec);
        },
        resolveError(error) {
            return hand(2, 'resolveError', undefined, error);
        },
    };
    for (const name of keys(functions)) {
        freeze(functions[name]);
    }

    const freezeDeep = (value) => {
        if (typeof value === 'object' && value !== null) {
            const names = keys(value);
            for (let i = 0; i < names.length; i++) {
                freezeDeep(value[names[i]]);
            }
            freeze(value);
        }
    };

    // Called before the script: sets the clock and the dice, and gives it its `ctx`.
    const begin = (millis, first, second, third, grants, text) => {
        now = millis;
        granted = grants;
        a = first | 0;
        b = second | 0;
        c = third | 0;
        for (let i = 0; i < 12; i++) {
            next();
        }
        const ctx = parse(text);
        freezeDeep(ctx);
        const whole = { ...ctx, ...functions };
        freeze(whole);
        defineProperty(globalThis, 'ctx', { value: whole, enumerable: true });
    };

    // Called after it: the result as JSON, or its length when that is too much.
    const finish = (value, chars) => {
        const json = stringify(value);
        if (typeof json !== 'string') {
            return 'null';
        }
        return json.length > chars ? json.length : json;
    };

    return { begin, finish, tell };
})
