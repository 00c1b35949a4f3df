return Reflect.construct(Object.getPrototypeOf(() => {}).constructor, ['return 1'])();
