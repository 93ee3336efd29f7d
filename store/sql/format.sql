SELECT format FROM meta;
