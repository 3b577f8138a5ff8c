// uPlot stands in a script of its own: its small build is no module.
declare const uPlot: any;
